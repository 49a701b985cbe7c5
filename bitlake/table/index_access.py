"""Opening a data file's index, wherever it is kept; what a predicate does not need is not read."""

from __future__ import annotations

from bitlake.errors import CorruptError
from bitlake.fileindex.open import OpenIndex, open_index
from bitlake.metadata.manifest import DataFileMeta
from bitlake.metadata.schema import TableSchema
from bitlake.storage import Store
from bitlake.table.cache import Cache

INDEX_SUFFIX = ".index"

_open: Cache[tuple[str, str], OpenIndex] = Cache(256 * 1024 * 1024)


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


def open_for(store: Store, data_path: str, file: DataFileMeta, schema: TableSchema, strict: bool) -> OpenIndex | None:
    """Open the index of a data file written with ``schema``; None if it has none.

    What was opened and read stays cached: neither a data file nor its index ever changes.  Raises
    :class:`bitlake.errors.BitlakeError` when the container itself cannot be read; the path is in the message.
    """
    if file.embedded_index is not None:
        content = file.embedded_index
        key = (data_path, f"embedded:{len(content)}:{hash(content)}")
        found = _open.get(key)
        if found is None or (strict and found.problems):
            try:
                found = open_index(
                    lambda offset, length: content[offset : offset + length],
                    len(content),
                    schema.fields,
                    file.row_count,
                    strict=strict,
                )
            except CorruptError as e:
                raise e.within(f"the index embedded in the manifest for {data_path}") from e
            _open.put(key, found, len(content))
        return found
    name = index_name(file)
    if name is None:
        return None
    path = f"{data_path.rsplit('/', 1)[0]}/{name}"
    key = (path, "")
    found = _open.get(key)
    if found is None or (strict and found.problems):
        length = store.size(path)
        try:
            found = open_index(
                lambda offset, n: store.read_range(path, offset, n),
                length,
                schema.fields,
                file.row_count,
                strict=strict,
            )
        except CorruptError as e:
            raise e.within(path) from e
        _open.put(key, found, length)
    return found


def forget_all() -> None:
    """Drop every cached index (tests that break files on purpose need it)."""
    _open.clear()
