"""The table around an inspected file: its schemas, live files and deletion vectors, as far as they can be read.

It also finds a file by a short name, and the file index that a manifest entry embeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from bitlake.codec.binary_row import decode_row
from bitlake.errors import BitlakeError, NotFound
from bitlake.fileindex.description import DAMAGE
from bitlake.io import Store
from bitlake.io.base import scheme_of
from bitlake.metadata.partition import render_value
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import latest_schema, load_schema
from bitlake.tools.inspect.tree import Source, plain
from bitlake.types import AtomicType, DataField

if TYPE_CHECKING:
    from bitlake.metadata.manifest import ManifestEntry
    from bitlake.tableindex.vector_range import VectorRange


T = TypeVar("T")
_UP = 8
"""Folders between a data file and its table's, at most."""


class TableContext:
    """What is known of the table of a file; without ``paths``, nothing.

    Nothing here raises for damage: what cannot be read is not known.
    """

    def __init__(self, store: Store, paths: TablePaths | None) -> None:
        self.store = store
        self.paths = paths
        self._schemas: dict[int, TableSchema | None] = {}

    @staticmethod
    def around(store: Store, path: str) -> TableContext:
        """The table in whose folder a file lies: the nearest above it with a folder of schemas."""
        folder = path
        for _ in range(_UP):
            folder, slash, _ = folder.rpartition("/")
            if not slash or not folder:
                break
            if _quiet(lambda: store.dir_exists(f"{folder}/schema")):  # noqa: B023
                root, _, branch = folder.partition("/branch/branch-")
                return TableContext(store, TablePaths(root, branch or None))
        return TableContext(store, None)

    @cached_property
    def latest(self) -> TableSchema | None:
        """The table's latest schema."""
        paths = self.paths
        return None if paths is None else _quiet(lambda: latest_schema(TableFiles(self.store, paths)))

    def schema(self, schema_id: int) -> TableSchema | None:
        """A schema by id."""
        paths = self.paths
        if paths is None:
            return None
        if schema_id not in self._schemas:
            self._schemas[schema_id] = _quiet(lambda: load_schema(TableFiles(self.store, paths), schema_id))
        return self._schemas[schema_id]

    @property
    def partition_fields(self) -> tuple[DataField, ...]:
        """The partition columns."""
        return () if self.latest is None else tuple(self.latest.partition_fields)

    def key_fields(self, schema_id: int) -> tuple[DataField, ...]:
        """The columns of a data file's keys."""
        schema = self.schema(schema_id)
        return () if schema is None else tuple(schema.field(n) for n in schema.trimmed_primary_keys)

    def values(self, fields: Sequence[DataField], row: bytes) -> dict[str, Any]:
        """A BinaryRow of these columns by name, as people write values; empty if it is not one."""

        def decode() -> dict[str, Any]:
            found = decode_row([f.type for f in fields], row)
            return {f.name: shown(f, v) for f, v in zip(fields, found, strict=True)}

        return (_quiet(decode) or {}) if fields else {}

    @cached_property
    def state(self) -> TableState | None:
        """The table now."""
        paths = self.paths
        return (
            None
            if paths is None
            else _quiet(lambda: load_state(paths.root.rsplit("/", 1)[-1], TableFiles(self.store, paths)))
        )

    @cached_property
    def files(self) -> Mapping[str, tuple[str, ManifestEntry]]:
        """The live data files by name, and by the names of their index files: path and entry."""
        state = self.state
        if state is None:
            return {}

        from bitlake.snapshot.partitions import PartitionReader  # brings Avro, which few files are looked up for

        def find() -> dict[str, tuple[str, ManifestEntry]]:
            reader = PartitionReader(state.schema, state.paths)
            out = {}
            for entry in state.entries():
                for name in (entry.file.file_name, *entry.file.extra_files):
                    out[name] = (reader.data_path(entry), entry)
            return out

        return _quiet(find) or {}

    def vectors(self, index_file: str) -> Mapping[int, VectorRange]:
        """The vectors of a deletion vector file by their offset in it."""
        state = self.state
        if state is None or state.snapshot is None or state.snapshot.index_manifest is None:
            return {}
        from bitlake.metadata.index_manifest import DELETION_VECTORS, decode_index_manifest

        path = state.paths.manifest(state.snapshot.index_manifest)
        entries = _quiet(lambda: decode_index_manifest(self.store.read(path))) or []
        found = (e for e in entries if e.index_type == DELETION_VECTORS and e.file_name == index_file)
        return {r.offset: r for e in found for r in e.ranges or ()}


def shown(field: DataField, value: Any) -> Any:
    """A physical value of a column as people write it."""
    if value is None:
        return None
    if isinstance(field.type, AtomicType) and not isinstance(value, bytes):
        made = field.type
        text = _quiet(lambda: render_value(made, value, legacy=False))
        return plain(value) if text is None else text
    return plain(value)


def _quiet(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (BitlakeError, *DAMAGE):
        return None


INDEX = ".index"


def find_file(store: Store, context: TableContext, path: str) -> str:
    """The full path of a file; raises :class:`NotFound` telling where it was looked for.

    A path of an index that is not there stays as it is when its data file has an embedded one.
    """
    path = path.removeprefix("./")
    candidates: list[str] = []
    for candidate in _candidates(context, path):  # the last of them takes looking into manifests
        if candidate in candidates:
            continue
        candidates.append(candidate)
        if store.exists(candidate) and not _is_folder(store, candidate):
            return candidate
    if embedded(context, path) is not None:
        return context.files[_data_name(path)][0] + INDEX
    if _is_folder(store, path):
        raise NotFound(f"{path} is a folder; name one file in it")
    looked = "" if len(candidates) == 1 else f" (looked for as {candidates[0]}"
    if len(candidates) > 1:
        # By its name alone it is looked for everywhere.
        looked += ")" if "/" in path else ", in the table's folders of metadata, and among its live data files)"
    raise NotFound(f"file {path} does not exist{looked}")


def _candidates(context: TableContext, path: str) -> Iterator[str]:
    paths = context.paths
    if paths is None or path.startswith(("/", "file:")) or scheme_of(path) != "file":
        yield path
        return
    yield f"{paths.root}/{path}"
    yield f"{paths.branch_root}/{path}"
    if "/" in path:
        yield path
        return
    for folder in (
        paths.snapshot_dir, paths.schema_dir, paths.tag_dir, paths.manifest_dir, f"{paths.root}/index",
        f"{paths.root}/statistics", f"{paths.branch_root}/changelog", f"{paths.branch_root}/consumer",
    ):  # fmt: skip
        yield f"{folder}/{path}"
    found = context.files.get(path)
    if found is not None:
        yield f"{found[0].rpartition('/')[0]}/{path}"


def _is_folder(store: Store, path: str) -> bool:
    # A local folder has a size, too.
    return store.local_path(path) is not None and store.dir_exists(path)


def _data_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(INDEX)


def embedded(context: TableContext, path: str) -> bytes | None:
    """The index embedded in the manifest for ``<data file>.index``, or None."""
    if not path.endswith(INDEX):
        return None
    found = context.files.get(_data_name(path))
    return None if found is None else found[1].file.embedded_index


def open_source(store: Store, context: TableContext, path: str) -> tuple[Source, str | None]:
    """The bytes of a file, or of an embedded index, and a remark that it is one."""
    inside = embedded(context, path)
    if inside is not None and not store.exists(path):
        return Source.of_bytes(path, inside), "embedded in the manifest's entry of the data file; offsets are its own"
    return Source.of_file(store, path), None


def index_of(context: TableContext, path: str) -> str:
    """Where the index of a data file is; a path of an index stays; raises :class:`NotFound` for one without."""
    if path.endswith(INDEX):
        return path
    found = context.files.get(path.rsplit("/", 1)[-1])
    if found is None:
        return path + INDEX
    names = [n for n in found[1].file.extra_files if n.endswith(INDEX)]
    if names:
        return f"{path.rpartition('/')[0]}/{names[0]}"
    if found[1].file.embedded_index is None:
        raise NotFound(f"data file {path} has no file index; rewrite_file_index builds one")
    return path + INDEX


def rows_of(context: TableContext, path: str) -> int | None:
    """The rows of the data file that a path, or the index at it, is of; None if it is not live."""
    name = path.rsplit("/", 1)[-1]
    found = context.files.get(name) or context.files.get(_data_name(name))
    return None if found is None else found[1].file.row_count


def fields_of(context: TableContext, path: str) -> Sequence[DataField]:
    """The columns of the schema that a data file, or the index of one, was written with; else the latest schema's."""
    name = path.rsplit("/", 1)[-1]
    found = context.files.get(name) or context.files.get(_data_name(name))
    schema = context.latest if found is None else context.schema(found[1].file.schema_id)
    return () if schema is None else schema.fields
