"""Predicates: from SQL text, bound to a schema, asked of statistics, partitions, indexes and rows."""
