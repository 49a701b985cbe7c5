"""Bytes and values: big-endian fields, BinaryRow, hashes, Java orders, Roaring bitmaps."""
