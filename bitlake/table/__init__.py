"""Tables: scans and their plans, writing, committing, keeping indexes.  Independent of Spark."""
