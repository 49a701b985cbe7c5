"""Indexes of a whole table: deletion vectors and bucket hashes."""
