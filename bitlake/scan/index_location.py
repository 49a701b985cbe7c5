"""What a manifest says of a data file's index, without opening it."""

from __future__ import annotations

from bitlake.errors import CorruptError
from bitlake.metadata.manifest import DataFileMeta

INDEX_SUFFIX = ".index"


def index_name(file: DataFileMeta) -> str | None:
    """The name of the file's separate index, or None; raises :class:`CorruptError` when the manifest names two."""
    names = [n for n in file.extra_files if n.endswith(INDEX_SUFFIX)]
    if len(names) > 1:
        raise CorruptError(
            f"data file {file.file_name} names {len(names)} index files ({', '.join(names)}); one is allowed"
        )
    return names[0] if names else None


def has_index(file: DataFileMeta) -> bool:
    """Whether the manifest says that the file has an index at all."""
    return file.embedded_index is not None or any(n.endswith(INDEX_SUFFIX) for n in file.extra_files)
