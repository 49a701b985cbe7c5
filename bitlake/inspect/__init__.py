"""What is in a file of a table, byte by byte: trees of parts with their offsets, for people and as plain values."""
