"""File indexes: the index types of a data file, their registry, and evaluating predicates with them."""

INDEX_PREFIX, INDEX_COLUMNS = "file-index.", ".columns"
"""Prefix and suffix of options: ``file-index.<type>.columns`` and ``file-index.<type>.<column>.<option>``."""
