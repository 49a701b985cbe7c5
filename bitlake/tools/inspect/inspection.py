"""Inspect one file of a table: :func:`inspect_file`.

The kind of a file follows from its first bytes where its format has a magic number, otherwise from its name.
"""

from __future__ import annotations

import enum
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitlake import arguments
from bitlake.codec.avro import MAGIC as AVRO_MAGIC
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.fileindex.payload import Fault, Page
from bitlake.formatting import counted, printable
from bitlake.io import Store, open_store
from bitlake.metadata.paths import TablePaths
from bitlake.tools.inspect import metadata_files
from bitlake.tools.inspect.tree import (
    ORC_MAGIC,
    Node,
    Source,
    TableContext,
    fields_of,
    find_file,
    hex_lines,
    index_of,
    open_source,
    render,
    rows_of,
)

if TYPE_CHECKING:
    from bitlake.fileindex.container import ContainerHeader
    from bitlake.tools.inspect.indexes import ValueRows


START = 64
"""First bytes of a file that tell its kind, if they do."""


class Kind(enum.Enum):
    """The kinds of files a table has."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    CHANGELOG = "changelog"
    SCHEMA = "schema"
    HINT = "hint"
    STATISTICS = "statistics"
    CONSUMER = "consumer"
    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    INDEX_MANIFEST = "index manifest"
    FILE_INDEX = "file index"
    VECTORS = "deletion vectors"
    HASHES = "hash index"
    PARQUET = "Parquet data file"
    ORC = "ORC data file"
    AVRO = "Avro file"
    JSON = "JSON"
    UNKNOWN = "unknown file"


_NAMES = (
    (re.compile(r"^snapshot-\d+$"), Kind.SNAPSHOT),
    (re.compile(r"^tag-."), Kind.TAG),
    (re.compile(r"^changelog-\d+$"), Kind.CHANGELOG),
    (re.compile(r"^schema-\d+$"), Kind.SCHEMA),
    (re.compile(r"^(LATEST|EARLIEST)$"), Kind.HINT),
    (re.compile(r"^stat-"), Kind.STATISTICS),
    (re.compile(r"^consumer-"), Kind.CONSUMER),
    (re.compile(r"^manifest-list-"), Kind.MANIFEST_LIST),
    (re.compile(r"^index-manifest-"), Kind.INDEX_MANIFEST),
    (re.compile(r"^manifest-"), Kind.MANIFEST),
    (re.compile(r"\.index$"), Kind.FILE_INDEX),
    (re.compile(r"\.parquet$"), Kind.PARQUET),
    (re.compile(r"\.orc$"), Kind.ORC),
    (re.compile(r"\.avro$"), Kind.AVRO),
    (re.compile(r"^index-"), Kind.HASHES),
)
_AVRO_KINDS = frozenset({Kind.MANIFEST, Kind.MANIFEST_LIST, Kind.INDEX_MANIFEST, Kind.AVRO})
_BY_FIELD = (
    ("_NUM_ADDED_FILES", Kind.MANIFEST_LIST),
    ("_INDEX_TYPE", Kind.INDEX_MANIFEST),
    ("_TOTAL_BUCKETS", Kind.MANIFEST),
)
_JSON_KINDS = frozenset(
    {Kind.SNAPSHOT, Kind.TAG, Kind.CHANGELOG, Kind.SCHEMA, Kind.STATISTICS, Kind.CONSUMER, Kind.JSON}
)


def by_name(path: str) -> Kind:
    """Return the kind of a file by its name."""
    name = path.rsplit("/", 1)[-1]
    return next((kind for pattern, kind in _NAMES if pattern.search(name)), Kind.UNKNOWN)


def by_magic(start: bytes, size: int) -> Kind:
    """Return the kind of a file of ``size`` bytes by its first bytes; Avro files are not distinguished."""
    if start.lstrip()[:1] == b"{":
        return Kind.JSON
    if start.startswith(b"PAR1"):
        return Kind.PARQUET
    if start.startswith(ORC_MAGIC):
        return Kind.ORC
    if start.startswith(AVRO_MAGIC):
        return Kind.AVRO
    if start[:size].isdigit():
        return Kind.UNKNOWN  # a hint, which its name tells
    # Those who know the rest load numpy and Arrow, which files of text and their likes do without.
    from bitlake.tools.inspect import indexes

    if start.startswith(indexes.MAGIC_BYTES):
        return Kind.FILE_INDEX
    return Kind.VECTORS if indexes.is_vectors(start, size) else Kind.UNKNOWN


def kind_of(path: str, start: bytes, size: int, avro_fields: tuple[str, ...]) -> tuple[Kind, str | None]:
    """A file's kind, and a remark where name and content differ; ``avro_fields`` are those of an Avro file's records.

    The content wins where it has a mark of its own; otherwise the name does.
    """
    named, magic = by_name(path), by_magic(start, size)
    if magic is Kind.AVRO:
        inner = next((kind for field, kind in _BY_FIELD if field in avro_fields), Kind.AVRO)
        if inner is Kind.AVRO and named in _AVRO_KINDS:
            inner = named  # its header may be what is damaged
        magic = inner
    if magic is Kind.JSON and named in _JSON_KINDS:
        magic = named
    if magic in (Kind.UNKNOWN, named) or (magic is Kind.JSON and named is not Kind.UNKNOWN):
        return named, None
    if named is Kind.UNKNOWN or (named is Kind.HASHES and magic is Kind.VECTORS):
        return magic, None
    return magic, f"the name is that of a {named.value}, the content that of a {magic.value}"


ANY = object()
"""No value is given (None stands for NULL)."""
_MOST_HEX = 1 << 20


@dataclass(frozen=True, slots=True)
class HexView:
    """A region of a file: ``data`` stands at ``offset``."""

    offset: int
    data: bytes

    def __str__(self) -> str:
        return "\n".join(hex_lines(self.data, self.offset))


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of a file.

    ``root`` is the tree of its parts.  ``rows``: what each index says of the value asked about.  ``hex``: the region
    asked for.  ``bytes_read``: of the file's ``size``, what was looked at for this.  ``str()`` is for people.

    >>> inspection = table.maintenance.inspect("snapshot-2")
    >>> inspection
    Inspection(.../snapshot/snapshot-2: snapshot, ... bytes)
    >>> inspection.kind, inspection.faults
    ('snapshot', [])
    >>> text, values = inspection.text(), inspection.to_dict()
    >>> inspection.to_json()[:1]
    '{'
    """

    path: str
    kind: str
    size: int
    root: Node
    bytes_read: int
    remark: str | None = None
    rows: tuple[ValueRows, ...] = ()
    hex: HexView | None = None

    def __repr__(self) -> str:
        return f"Inspection({self.path}: {self.kind}, {self.size:,} bytes)"

    @property
    def faults(self) -> list[Fault]:
        """Faults of the file; empty if none was found in what was read."""
        return self.root.faults()

    def text(self, width: int = 0) -> str:
        """All of it as text, the tree in lines of at most ``width`` characters (0: of any length)."""
        lines = [f"{self.path}", f"{self.kind}, {counted(self.size, 'byte')} ({self.bytes_read:,} looked at)"]
        lines += [f"note: {self.remark}"] if self.remark else []
        lines += ["", render(self.root, width)] if self.hex is None or self.rows else []
        lines += ["", *map(str, self.rows)] if self.rows else []
        lines += ["", str(self.hex)] if self.hex is not None else []
        if self.faults:
            lines += ["", f"damaged: {self.faults[0]}"]
            lines += [f"         {f}" for f in self.faults[1:20]]
            lines += [f"         … {len(self.faults) - 20:,} more"] if len(self.faults) > 20 else []
        return printable("\n".join(lines))

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold."""
        out: dict[str, Any] = {"path": self.path, "kind": self.kind, "size": self.size, "bytes_read": self.bytes_read}
        out["remark"] = self.remark
        out["faults"] = [{"what": f.what, "offset": f.offset} for f in self.faults]
        out["tree"] = self.root.to_dict()
        out["rows"] = [r.to_dict() for r in self.rows]
        if self.hex is not None:
            out["hex"] = {"offset": self.hex.offset, "bytes": self.hex.data.hex()}
        return out

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


def inspect_file(
    path: str,
    *,
    store: Store | None = None,
    table: TablePaths | None = None,
    offset: int = 0,
    limit: int = 20,
    column: str | None = None,
    value: Any = ANY,
    hex: tuple[int, int] | None = None,
    timezone: str = "UTC",
) -> Inspection:
    """Look into a file: its parts as a tree, with offsets and sizes in bytes.

    ``path`` is a path or URI; with ``table`` it may be relative to the table's folder, or only a name.  The table that
    a file lies in is found by itself.  A name such as ``….parquet.index`` of an index that is embedded in a manifest
    shows that one.

    Lists show ``limit`` entries from number ``offset`` on, and nothing else of them is read.  ``column``: of a Parquet
    file its pages, of a file index its values, of a manifest its statistics.  ``value`` (with ``column``, of a data
    file or its index): which rows have it, as each index tells; a Python value or a literal as SQL reads it, None is
    NULL.  ``hex``: (offset, length) of a region to show as bytes.

    Damaged files give the tree up to the fault, and the fault.  Raises :class:`NotFound` for a file that is not there
    and :class:`InvalidRequest` for a request that makes no sense.
    """
    if arguments.whole("offset", offset) < 0 or arguments.whole("limit", limit) < 0:
        raise InvalidRequest("offset and limit must not be negative")
    if value is not ANY and column is None:
        raise InvalidRequest("a value is looked up in the indexes of a column: say which column")
    store = store or open_store(path if table is None else table.root)
    context = TableContext(store, table)
    full = find_file(store, context, path)
    if context.paths is None:
        context = TableContext.around(store, full)
    if value is not ANY:
        full = index_of(context, full)
    source, note = open_source(store, context, full)
    kind, remark = _kind(source)
    view = None if hex is None else _region(source, *hex)
    tree = Node("file", 0, source.size)
    rows: tuple[ValueRows, ...] = ()
    page = Page(offset, limit)
    if view is None or value is not ANY:
        header = None
        with tree.reading():
            header = _fill(tree, kind, source, page, context, column)
        if value is not ANY and column is not None:
            rows = _rows_of(header, kind, context, source, column, value, page, timezone)
    remarks = "; ".join(filter(None, (note, remark))) or None
    looked = min(source.bytes_read, source.size)  # neighbours may have come twice
    return Inspection(source.path, kind.value, source.size, tree, looked, remarks, rows, view)


def _kind(source: Source) -> tuple[Kind, str | None]:
    start = source.start(START)
    fields: tuple[str, ...] = ()
    if start.startswith(AVRO_MAGIC):
        with suppress(BitlakeError):
            fields = metadata_files.read_header(source).fields
    return kind_of(source.path, start, source.size, fields)


def _region(source: Source, at: int, length: int) -> HexView:
    if not 0 <= at <= source.size or length < 0:
        raise InvalidRequest(f"bytes from {at:,} are asked for, {length:,} of them; the file has {source.size:,}")
    return HexView(at, source.view(at, min(length, source.size - at, _MOST_HEX)))


def _rows_of(
    header: ContainerHeader | None,
    kind: Kind,
    context: TableContext,
    source: Source,
    column: str,
    value: Any,
    page: Page,
    timezone: str,
) -> tuple[ValueRows, ...]:
    if kind is not Kind.FILE_INDEX:
        raise InvalidRequest(f"{source.path} is a {kind.value}; a value's rows can be looked up only in a file index")
    if header is None:
        return ()  # the tree says what is wrong
    from bitlake.tools.inspect import indexes

    fields, count = fields_of(context, source.path), rows_of(context, source.path)
    return tuple(indexes.rows_of_value(source, header.columns, fields, count, column, value, page, timezone))


def _fill(
    tree: Node, kind: Kind, source: Source, page: Page, context: TableContext, column: str | None
) -> ContainerHeader | None:
    """Add what is in a file of this kind; the header of a file index."""
    # A kind's module is loaded for files of that kind: most bring numpy and Arrow, which take longest of all.
    if source.size == 0 and kind is not Kind.HASHES:
        raise CorruptError("the file is empty", 0)
    match kind:
        case Kind.HINT:
            metadata_files.hint_tree(tree, source)
        case Kind.MANIFEST_LIST:
            metadata_files.manifest_list_tree(tree, source, page, context)
        case Kind.MANIFEST:
            metadata_files.manifest_tree(tree, source, page, context, column)
        case Kind.INDEX_MANIFEST:
            metadata_files.index_manifest_tree(tree, source, page, context)
        case Kind.FILE_INDEX | Kind.VECTORS | Kind.HASHES:
            return _fill_index(tree, kind, source, page, context, column)
        case Kind.PARQUET | Kind.ORC:
            from bitlake.tools.inspect import data_files

            if kind is Kind.PARQUET:
                data_files.parquet_tree(tree, source, page, column)
            else:
                data_files.orc_tree(tree, source, page)
        case Kind.AVRO:
            metadata_files.avro_tree(tree, source, page, None, metadata_files.describe_row, "rows")
        case Kind.UNKNOWN:
            tree.facts["note"] = (
                "neither its name nor its first bytes are those of a file of a table; look at it as hex"
            )
        case _:
            metadata_files.json_tree(tree, source, page, kind.value)
    return None


def _fill_index(
    tree: Node, kind: Kind, source: Source, page: Page, context: TableContext, column: str | None
) -> ContainerHeader | None:
    from bitlake.tools.inspect import indexes

    if kind is Kind.FILE_INDEX:
        return indexes.file_index_tree(tree, source, page, fields_of(context, source.path), column)
    if kind is Kind.VECTORS:
        indexes.vectors_tree(tree, source, page, context.vectors(source.path.rsplit("/", 1)[-1]))
    else:
        indexes.hashes_tree(tree, source, page)
    return None
