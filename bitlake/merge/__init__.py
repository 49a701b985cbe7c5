"""Merging the rows of one primary key: sorted runs in Arrow in, one row for each key out.  Reads no files."""
