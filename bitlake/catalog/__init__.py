"""Catalogs: where the names of databases and tables are kept."""
