"""Advise on a table's indexes, sort order, buckets and page size, from its data and its queries."""
