"""Read lake tables on Spark: scans, queries, time travel, metadata-only queries."""
