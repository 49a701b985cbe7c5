"""A tour that a person runs: the article's tables, then a million orders with and without an index."""
