"""Writing primary-key tables: level-0 files, compaction, deletion vectors, changelog."""
