"""Types that flow through a run, interfaces of parts, options, and import paths."""
