"""Check of the directory at the end of a zip file, which `zipfile` reads at once however large it claims to be.

A sparse file of a few bytes on the disk may claim gigabytes. Exported policies contain this file, so it imports only
Python's standard library.
"""

from __future__ import annotations

import os
import struct
from typing import IO

END, LOCATOR, RECORD = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")


def require_short_directory(file: IO[bytes], limit: int) -> None:
    """Raise ValueError unless a zip file ends in a list of its entries of at most `limit` bytes, without a comment."""
    size = file.seek(0, os.SEEK_END)
    tail = min(size, RECORD.size + LOCATOR.size + END.size)
    file.seek(size - tail)
    data = file.read(tail).rjust(RECORD.size + LOCATOR.size + END.size, b"\0")
    record, locator, end = (
        form.unpack_from(data, place)
        for form, place in ((RECORD, 0), (LOCATOR, RECORD.size), (END, RECORD.size + LOCATOR.size))
    )
    claimed = end[5]
    if locator[0] == b"PK\x06\x07":  # of an archive beyond 2 GB
        claimed = record[8] if record[0] == b"PK\x06\x06" and locator[2] == size - len(data) else size
    if end[0] != b"PK\x05\x06" or end[7] or claimed > limit:
        raise ValueError(f"it does not end in the directory of a zip file, of at most {limit} bytes")
