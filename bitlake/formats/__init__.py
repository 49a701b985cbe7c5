"""Data files: writing Parquet, reading whole files, chosen rows and statistics."""
