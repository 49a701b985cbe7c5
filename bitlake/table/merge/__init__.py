"""Merging the rows of one primary key: sorted runs of Arrow in, one row a key out.  Knows nothing of files."""
