"""Writing data files and commits; DML, compaction and index builds of append tables."""
