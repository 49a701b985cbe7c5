"""File indexes: bytes of one data file's bloom, bitmap, range-bitmap and bit-slice indexes, and asking them."""
