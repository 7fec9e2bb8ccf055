"""tests/matrix.py: what is missing in sdist or wheel, or does not belong there."""

import io
import tarfile
import zipfile

import pytest

import matrix

TRACKED = {"LICENSE", "src/ppax/__init__.py", "src/ppax/py.typed", "tests/test_all.py"}
SDIST = [*TRACKED, "PKG-INFO"]
WHEEL = ["ppax/__init__.py", "ppax/py.typed"]
ABOUT = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]


def packed(folder, in_sdist, in_wheel):
    sdist, wheel = folder / "ppax-0.1.0.tar.gz", folder / "ppax-0.1.0-py3-none-any.whl"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in in_sdist:
            archive.addfile(tarfile.TarInfo(f"ppax-0.1.0/{name}"), io.BytesIO())
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in in_wheel:
            archive.writestr(name, b"")
    return sdist, wheel


ALL = [*WHEEL, *(f"ppax-0.1.0.dist-info/{name}" for name in ABOUT)]
CASES = {
    "right": (SDIST, ALL, []),
    "a file is not in the sdist": (
        [name for name in SDIST if name != "tests/test_all.py"],
        ALL,
        ["ppax-0.1.0.tar.gz: tests/test_all.py is missing"],
    ),
    "a run is in the sdist": ([*SDIST, "runs/a"], ALL, ["ppax-0.1.0.tar.gz: runs/a does not belong there"]),
    "no type information in the wheel": (
        SDIST,
        [name for name in ALL if name != "ppax/py.typed"],
        ["ppax-0.1.0-py3-none-any.whl: ppax/py.typed is missing"],
    ),
    "no licence in the wheel": (
        SDIST,
        ALL[:-1],
        ["ppax-0.1.0-py3-none-any.whl: *.dist-info/licenses/LICENSE is missing"],
    ),
    "tests in the wheel": (
        SDIST,
        [*ALL, "tests/test_all.py"],
        ["ppax-0.1.0-py3-none-any.whl: tests/test_all.py does not belong there"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_files_that_are_missing_or_do_not_belong_are_named(case, tmp_path):
    in_sdist, in_wheel, lines = CASES[case]
    assert matrix.misplaced(*packed(tmp_path, in_sdist, in_wheel), TRACKED) == lines
