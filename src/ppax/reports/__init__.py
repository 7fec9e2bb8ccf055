"""Reports of recorded runs: rows of a run directory become curves, pictures (SVG), an HTML page and a comparison."""
