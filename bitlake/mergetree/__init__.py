"""Primary-key tables as LSM trees: bucket assignment, writing, compaction, changelog, DML."""
