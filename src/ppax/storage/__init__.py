"""Files on disk: atomic writes, retries, checksums of checkpoints; the cache of compiled programs."""
