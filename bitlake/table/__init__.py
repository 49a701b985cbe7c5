"""Tables: scans and their plans, writing, committing, keeping indexes.  Knows nothing of Spark."""
