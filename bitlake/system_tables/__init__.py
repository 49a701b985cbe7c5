"""System tables: a table's metadata as tables, such as ``t$snapshots``."""
