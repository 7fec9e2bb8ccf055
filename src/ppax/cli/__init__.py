"""Command line of ppax: one file for each command."""
