"""Types that flow through a run, protocols of parts, options of configurations, and trust in import paths and files."""
