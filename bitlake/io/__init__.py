"""Files on disk and in object stores, and wrappers that count or break calls; the only room that touches either."""

from bitlake.io.base import FileInfo, Store, has_cheap_rename, open_store

__all__ = ["FileInfo", "Store", "has_cheap_rename", "open_store"]
