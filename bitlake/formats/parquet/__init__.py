"""Parquet: footers and page indexes, selective reads by page, and writing files for such reads."""
