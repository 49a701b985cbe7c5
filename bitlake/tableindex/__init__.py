"""Table indexes: deletion vectors and the HASH indexes of dynamic buckets."""
