"""Merging the rows of one primary key: sorted runs in Arrow in, one row per key out.  Knows no files."""
