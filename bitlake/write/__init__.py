"""Writing: data files and indexes, commits and conflict checks; DML, compaction and backfills of append tables."""
