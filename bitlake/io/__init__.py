"""Stores: files on disk, in object stores and on HDFS; nothing else in bitlake opens a path."""

from bitlake.io.base import FileInfo, Store, has_cheap_rename
from bitlake.io.open import open_store

__all__ = ["FileInfo", "Store", "has_cheap_rename", "open_store"]
