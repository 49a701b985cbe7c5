"""The file index of one data file: its container read whole, then each payload compared with the file's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller

import pyarrow as pa
import pyarrow.compute as pc

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.tree import IsNull
from bitlake.fileindex.container import EMPTY, read_header
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import INDEX_TYPES, indexed_type, parse_index_options
from bitlake.fileindex.verify import IndexCheck
from bitlake.io import Store
from bitlake.metadata.manifest import DataFileMeta
from bitlake.metadata.schema import TableSchema
from bitlake.table.index_access import index_name
from bitlake.table.verify.findings import Finding, of_error

Options = Mapping[tuple[str, str], Mapping[str, str]]
"""The options of indexes by (column, index type)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One payload that is to be compared with rows."""

    column: str
    index_type: str
    source: str
    key: str | None
    offset: int
    check: IndexCheck

    def take(self, batch: pa.Table) -> None:
        """Add the payload's column of a batch."""
        column = batch.column(self.source)
        if self.key is not None:
            column = pc.map_lookup(column, pa.scalar(self.key, column.type.key_type), "first")
        self.check.add(column)


class FileIndexCheck:
    """Checks one container.  ``path`` is where it is told to be: the index file, or the data file that embeds it."""

    def __init__(self, path: str, content: bytes, schema: TableSchema, options: Options, rows: int) -> None:
        """``schema``: of the data file; ``rows``: how many it has."""
        self._path = path
        self._parts: list[_Part] = []
        self._fields = schema.fields
        self._rows = rows
        self.findings: list[Finding] = []
        try:
            columns = read_header(content).columns
        except BitlakeError as e:
            self.findings.append(of_error("index-unreadable", path, e))
            return
        for column, kinds in columns.items():
            for kind, (start, length) in kinds.items():
                self._begin(content, column, kind, start, length, options)

    @property
    def columns(self) -> set[str]:
        """The columns of the data file that it needs."""
        return {p.source for p in self._parts}

    def _note(self, code: str, column: str, what: str, offset: int | None = None) -> None:
        self.findings.append(Finding(code, self._path, what, column, offset))

    def _begin(self, content: bytes, column: str, kind: str, start: int, length: int, options: Options) -> None:
        known = indexed_type(column, self._fields)
        if known is None or kind not in INDEX_TYPES:
            what = f"there is no index type '{kind}'" if known else f"the data file has no column '{column}'"
            self._note("index-unknown", column, f"index '{kind}': {what}")
            return
        if (start, length) == EMPTY:
            if self._rows:
                self._note("index-wrong", column, f"index '{kind}' says that the file has no row", 0)
            return
        field, key, made = known
        payload = content[start : start + length]
        try:
            index = open_index(lambda at, n: content[at : at + n], len(content), self._fields, self._rows, strict=True)
            # A question that every kind of index answers, or not, from its head.
            index.ask(column, kind, methodcaller("test", IsNull(column)))
            check = IndexCheck(made, kind, options.get((column, kind), {}), payload)
        except CorruptError as e:
            self._note("index-unreadable", column, e.what, start + (e.offset or 0))
        except (InvalidRequest, UnsupportedFeature) as e:
            self._note("index-unknown", column, f"index '{kind}': {e}")
        else:
            self._parts.append(_Part(column, kind, field.name, key, start, check))

    def add(self, batch: pa.Table) -> None:
        """Look at the file's rows, in order."""
        for part in list(self._parts):
            try:
                part.take(batch)
            except UnsupportedFeature as e:
                self._parts.remove(part)
                self._note(
                    "index-wrong", part.column, f"index '{part.index_type}' cannot hold the column: {e}", part.offset
                )

    def finish(self) -> list[Finding]:
        """After the last row: everything that is wrong with it."""
        for part in self._parts:
            try:
                wrong = part.check.finish()
            except CorruptError as e:
                self._note(
                    "index-unreadable",
                    part.column,
                    f"index '{part.index_type}': {e.what}",
                    part.offset + (e.offset or 0),
                )
                continue
            except BitlakeError as e:
                self._note("index-unreadable", part.column, f"index '{part.index_type}': {e}", part.offset)
                continue
            if wrong is not None:
                self._note("index-wrong", part.column, f"index '{part.index_type}': {wrong}", part.offset)
        return self.findings


def index_content(store: Store, data_path: str, file: DataFileMeta) -> tuple[str, bytes | None, list[Finding]]:
    """Where a data file's index is, its bytes (None: none, or they are not there), and what is wrong with that."""
    if file.embedded_index is not None:
        return data_path, file.embedded_index, []
    try:
        name = index_name(file)
    except CorruptError as e:
        return data_path, None, [Finding("index-twice", data_path, e.what)]
    if name is None:
        return data_path, None, []
    path = f"{data_path.rsplit('/', 1)[0]}/{name}"
    try:
        return path, store.read(path), []
    except NotFound:
        return path, None, [Finding("index-missing", path, "the file is not there")]


def index_options(schemas: Sequence[TableSchema]) -> Options:
    """The options of all indexes that schemas declare, the first schema counting most."""
    out: dict[tuple[str, str], Mapping[str, str]] = {}
    for schema in schemas:
        try:
            specs = parse_index_options(schema.options, schema.fields)
        except InvalidRequest:
            continue  # options that nobody can use: the payloads are compared by what they mean
        for spec in specs:
            out.setdefault((spec.column, spec.index_type), spec.options)
    return out
