"""Files on disk: written atomically under fresh names, retried, with checksums; the cache of compiled programs."""
