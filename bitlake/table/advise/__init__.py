"""Advice on a table's indexes, order, buckets and pages, from its own data and the queries that are asked of it."""
