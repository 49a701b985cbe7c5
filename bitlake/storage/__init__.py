"""Files on local disk, and wrappers that count or break calls; the only room that touches a file system."""

from bitlake.storage.base import FileInfo, Store, open_store

__all__ = ["FileInfo", "Store", "open_store"]
