"""The tree that an inspection returns, the bytes it is read from, and the table around the inspected file.

A tree's nodes have an offset, a length, facts and faults.  :class:`Source` fetches a file's bytes on access and counts
them.  :class:`TableContext` knows the table's schemas, live files and deletion vectors, as far as they can be read.

:func:`find_file` finds a file by a short name, :func:`embedded` the file index that a manifest entry embeds.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from bitlake import arguments
from bitlake.codec.binary_row import decode_row
from bitlake.errors import BitlakeError, NotFound
from bitlake.fileindex.payload import DAMAGE, Fault, Fetch, LazyBytes, Section
from bitlake.formatting import shortened
from bitlake.io import Store
from bitlake.io.base import scheme_of
from bitlake.metadata.manifest import INDEX_SUFFIX
from bitlake.metadata.paths import TablePaths, render_value
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import latest_schema, load_schema
from bitlake.types import AtomicType, DataField

if TYPE_CHECKING:
    from bitlake.metadata.manifest import ManifestEntry
    from bitlake.tableindex import VectorRange


# --- bytes of a file --------------------------------------------------------------------------------------------------

_AHEAD = 4096

ORC_MAGIC = b"ORC"


class Source:
    """A file, or bytes that stand inside of another.  What was fetched is kept; every access is checked.

    ``path`` names it; ``size`` in bytes.
    """

    def __init__(self, path: str, size: int, fetch: Fetch, ahead: int = _AHEAD) -> None:
        self.path = path
        self.size = size
        self.requests = 0
        self._fetch = fetch
        self.window = LazyBytes(self._counted, size, ahead)

    @staticmethod
    def of_file(store: Store, path: str) -> Source:
        """A file of a store; asks for its size only."""
        return Source(path, store.size(path), lambda offset, length: store.read_range(path, offset, length))

    @staticmethod
    def of_bytes(path: str, data: bytes) -> Source:
        """Bytes that are at hand, as an index embedded in a manifest."""
        return Source(path, len(data), lambda offset, length: data[offset : offset + length])

    def _counted(self, offset: int, length: int) -> bytes | memoryview:
        self.requests += 1
        return self._fetch(offset, length)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self.window.bytes_read

    def view(self, offset: int, length: int) -> bytes:
        """These bytes; raises :class:`bitlake.errors.CorruptError` where the file ends before."""
        return bytes(self.window.view(offset, length))

    def start(self, length: int) -> bytes:
        """The first ``length`` bytes, or all of a shorter file."""
        return self.view(0, min(length, self.size))

    def part(self, offset: int, length: int) -> LazyBytes:
        """A window on a part of it."""
        return LazyBytes(self.from_here(offset), length, 0)

    def from_here(self, offset: int) -> Callable[[int, int], memoryview]:
        """A ``fetch`` for a part that starts at ``offset``."""
        return lambda at, n: self.window.view(offset + at, n, ahead=0)


# --- nodes ------------------------------------------------------------------------------------------------------------

_MOST_TEXT = 100
_LEAST_ROOM = 24


@dataclass(slots=True)
class Node(Section):
    """One part of a file, with the parts inside of it; offsets count from the start of the file."""

    def walk(self) -> Iterator[Node]:
        """This node and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    def faults(self) -> list[Fault]:
        """Every fault in this part, in the order of the tree."""
        return [n.fault for n in self.walk() if n.fault is not None]

    def find(self, *path: str) -> Node:
        """The part below this one by names, each a child of the one before; raises :class:`KeyError`."""
        node = self
        for name in path:
            node = next((c for c in node.children if c.name == name), None)  # type: ignore[assignment]
            if node is None:
                raise KeyError(name)
        return node

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain values that JSON can hold."""
        out: dict[str, Any] = {"name": self.name, "offset": self.offset, "size": self.size}
        out |= {"facts": plain(self.facts)} if self.facts else {}
        out |= {"children": [c.to_dict() for c in self.children]} if self.children else {}
        out |= {"more": self.more} if self.more != 0 else {}
        return out | ({"fault": asdict(self.fault)} if self.fault else {})


def plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes as hex, others as text where they have to be."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and value not in (float("inf"), float("-inf")) else str(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)


# --- the tree as text -------------------------------------------------------------------------------------------------


def render(node: Node, width: int = 0) -> str:
    """The tree as text: offset and size in columns, then the parts, each with what it says.

    What is longer than ``width`` characters is wrapped, so that the tree stays one; 0: nothing is.
    """
    rows: list[tuple[str, str, str, str]] = [("offset", "bytes", "", "")]
    _lines(node, "", "", rows)
    wide = [max(len(r[i]) for r in rows) for i in (0, 1)]
    room = max(_LEAST_ROOM, width - sum(wide) - 4) if width else 0
    lines = []
    for at, size, text, below in rows:
        parts = [text]
        if 0 < room < len(text):
            parts = textwrap.wrap(text, room, subsequent_indent=below, break_on_hyphens=False)
        lines += [f"{at:>{wide[0]}}  {size:>{wide[1]}}  {parts[0]}"]
        lines += [" " * (sum(wide) + 4) + part for part in parts[1:]]
    return "\n".join(line.rstrip() for line in lines)


def _lines(node: Node, first: str, rest: str, rows: list[tuple[str, str, str, str]]) -> None:
    facts = " · ".join(f"{k} {_text(v)}" if k else _text(v) for k, v in node.facts.items())
    line = f"{first}{node.name}" + (f"  {facts}" if facts else "")
    tails: list[str] = []
    if node.fault is not None:
        tails.append(f"✗ {node.fault}")
    if node.more is None:
        tails.append("… more")
    elif node.more:
        tails.append(f"… {node.more:,} more not shown")
    below = rest + ("│  " if node.children or tails else "   ")
    rows.append((_number(node.offset), _number(node.size), line, below))
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1 and not tails
        _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), rows)
    for i, tail in enumerate(tails):
        end = i == len(tails) - 1
        rows.append(("", "", rest + ("└─ " if end else "├─ ") + tail, rest + ("     " if end else "│    ")))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
    elif isinstance(value, list) and value and all(isinstance(v, list) and len(v) == 2 for v in value):
        text = ", ".join(f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in value)  # runs of rows
    else:
        text = json.dumps(plain(value), ensure_ascii=False)
    return shortened(text, _MOST_TEXT)


# --- bytes as text ----------------------------------------------------------------------------------------------------


def hex_lines(data: bytes, offset: int) -> list[str]:
    """Bytes that stand at ``offset`` of a file, 16 a line: offset, hexadecimal, and as ASCII."""
    wide = max(8, len(f"{offset + len(data):x}"))
    out = []
    for at in range(0, len(data), 16):
        line = data[at : at + 16]
        digits = f"{line[:8].hex(' '):<23}  {line[8:].hex(' '):<23}"
        out.append(f"{offset + at:0{wide}x}  {digits}  |{''.join(chr(b) if 32 <= b < 127 else '.' for b in line)}|")
    return out


# --- the table around a file ------------------------------------------------------------------------------------------

T = TypeVar("T")
_UP = 8
"""Folders between a data file and its table's, at most."""


class TableContext:
    """The table of a file; without ``paths`` it is unknown.

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
            values = decode_row([f.type for f in fields], row)
            return {f.name: shown(f, v) for f, v in zip(fields, values, strict=True)}

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
        entries_found = (e for e in entries if e.index_type == DELETION_VECTORS and e.file_name == index_file)
        return {r.offset: r for e in entries_found for r in e.ranges or ()}


def shown(field: DataField, value: Any) -> Any:
    """A physical value of a column as people write it."""
    if value is None:
        return None
    if isinstance(field.type, AtomicType) and not isinstance(value, bytes):
        kind = field.type
        text = _quiet(lambda: render_value(kind, value, legacy=False))
        return plain(value) if text is None else text
    return plain(value)


def _quiet(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (BitlakeError, *DAMAGE):
        return None


# --- finding files ----------------------------------------------------------------------------------------------------


def find_file(store: Store, context: TableContext, path: str) -> str:
    """The full path of a file; raises :class:`NotFound` telling where it was looked for.

    A path of an index that is not there stays as it is when its data file has an embedded one.
    """
    path = arguments.text("a path", path).removeprefix("./")
    candidates: list[str] = []
    for candidate in _candidates(context, path):  # the last of them takes looking into manifests
        if candidate in candidates:
            continue
        candidates.append(candidate)
        if store.exists(candidate) and not _is_folder(store, candidate):
            return candidate
    if embedded(context, path) is not None:
        return context.files[_data_name(path)][0] + INDEX_SUFFIX
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
    file = context.files.get(path)
    if file is not None:
        yield f"{file[0].rpartition('/')[0]}/{path}"


def _is_folder(store: Store, path: str) -> bool:
    # A local folder has a size, too.
    return store.local_path(path) is not None and store.dir_exists(path)


def _data_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(INDEX_SUFFIX)


def embedded(context: TableContext, path: str) -> bytes | None:
    """The index embedded in the manifest for ``<data file>.index``, or None."""
    if not path.endswith(INDEX_SUFFIX):
        return None
    file = context.files.get(_data_name(path))
    return None if file is None else file[1].file.embedded_index


def open_source(store: Store, context: TableContext, path: str) -> tuple[Source, str | None]:
    """The bytes of a file, or of an embedded index, and a remark that it is one."""
    inside = embedded(context, path)
    if inside is not None and not store.exists(path):
        return Source.of_bytes(path, inside), "embedded in the manifest's entry of the data file; offsets are its own"
    return Source.of_file(store, path), None


def index_of(context: TableContext, path: str) -> str:
    """Where the index of a data file is; a path of an index stays; raises :class:`NotFound` for one without."""
    if path.endswith(INDEX_SUFFIX):
        return path
    file = context.files.get(path.rsplit("/", 1)[-1])
    if file is None:
        return path + INDEX_SUFFIX
    names = [n for n in file[1].file.extra_files if n.endswith(INDEX_SUFFIX)]
    if names:
        return f"{path.rpartition('/')[0]}/{names[0]}"
    if file[1].file.embedded_index is None:
        raise NotFound(f"data file {path} has no file index; rewrite_file_index builds one")
    return path + INDEX_SUFFIX


def rows_of(context: TableContext, path: str) -> int | None:
    """The rows of the data file that a path, or the index at it, is of; None if it is not live."""
    name = path.rsplit("/", 1)[-1]
    file = context.files.get(name) or context.files.get(_data_name(name))
    return None if file is None else file[1].file.row_count


def fields_of(context: TableContext, path: str) -> Sequence[DataField]:
    """The columns of the schema that a data file, or the index of one, was written with; else the latest schema's."""
    name = path.rsplit("/", 1)[-1]
    file = context.files.get(name) or context.files.get(_data_name(name))
    schema = context.latest if file is None else context.schema(file[1].file.schema_id)
    return () if schema is None else schema.fields
