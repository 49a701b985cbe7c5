"""Parquet: footers and page indexes, reading chosen rows by their pages, writing files made for that."""
