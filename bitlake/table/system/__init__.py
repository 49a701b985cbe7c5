"""A table's metadata as tables: `t$snapshots` and the like."""
