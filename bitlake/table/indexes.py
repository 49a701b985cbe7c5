"""``table.indexes``: the file indexes that a table declares, advice on them, and recorded scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitlake import arguments
from bitlake.errors import AlreadyExists, BitlakeError, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.container import split_map_key
from bitlake.fileindex.named_index import declaration, name_of_index, named_keys
from bitlake.fileindex.registry import IndexSpec, changed_index_options, unusable_indexes, usable_indexes
from bitlake.metadata.manifest import ManifestEntry, has_index
from bitlake.metadata.options import option_texts
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import REQUESTS, LocalRunner
from bitlake.scan.index_pruning import open_file_index
from bitlake.schema.evolution import map_fields, map_indexed
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.tools.scan_log import ScanRecord, scan_log_of
from bitlake.write.index_rewrite import Rewritten

if TYPE_CHECKING:
    from bitlake.tools.advise.advice import Advice


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """A declared index, and how many files and rows of a snapshot there are and have it.

    ``problem``: why the declaration cannot be used with the table's columns; None if it can.  Such an index counts as
    missing in all files, and ``spec`` holds its declaration as it is written.
    """

    spec: IndexSpec
    files: int
    files_indexed: int
    rows: int
    rows_indexed: int
    problem: str | None = None


def index_coverage(state: TableState) -> Sequence[IndexCoverage]:
    """The coverage of a snapshot's files by each index that the table's options declare, unusable ones last."""
    schema = state.schema
    specs = usable_indexes(schema.options, schema.fields)
    entries = state.entries()
    schemas = state.schemas({e.file.schema_id for e in entries})
    partitions = PartitionReader(schema, state.paths)
    mappings = {i: map_fields(schema.fields, s.fields) for i, s in schemas.items()}
    # What each index is called in the files of each schema; None where these cannot have it.
    names = {i: [map_indexed(s.column, schema.fields, mapping) for s in specs] for i, mapping in mappings.items()}

    def indexed(entry: ManifestEntry) -> list[bool]:
        if not has_index(entry.file):
            return [False] * len(specs)
        schema_id = entry.file.schema_id
        try:
            index = open_file_index(state.store, partitions.data_path(entry), entry.file, schemas[schema_id])
        except BitlakeError:
            return [False] * len(specs)  # a scan reads such a file without its index, too
        columns = {} if index is None else index.columns
        return [
            name is not None and s.index_type in columns.get(name, {})
            for s, name in zip(specs, names[schema_id], strict=True)
        ]

    by_file = LocalRunner(REQUESTS).run(entries, indexed) if specs else []
    rows = [e.file.row_count for e in entries]
    unusable = [
        IndexCoverage(spec, len(entries), 0, sum(rows), 0, problem)
        for spec, problem in unusable_indexes(schema.options, schema.fields)
    ]
    return [
        IndexCoverage(
            spec,
            len(entries),
            sum(of_file[i] for of_file in by_file),
            sum(rows),
            sum(n for n, of_file in zip(rows, by_file, strict=True) if of_file[i]),
        )
        for i, spec in enumerate(specs)
    ] + unusable


class TableIndexes:
    """The namespace ``table.indexes``.

    >>> schema = table.indexes.create("order_id", "bloom-filter")
    >>> len(table.indexes.rebuild())
    3
    """

    def __init__(self, core: FileStoreTable) -> None:
        self._core = core

    def list(self) -> Sequence[IndexSpec]:
        """The indexes that the options declare, each with its column, type and options, in the order of declaration.

        Declarations that do not fit the table's columns are left out; :meth:`coverage` shows them, with the reason.

        >>> table.indexes.list()
        [IndexSpec(column='status', index_type='bitmap', options={})]
        """
        schema = self._core.schema
        return usable_indexes(schema.options, schema.fields)

    def create(
        self, column: str, type: str, options: Mapping[str, str] | None = None, *, name: str | None = None
    ) -> TableSchema:
        """Declare an index on a column, or under a name on an expression; files written from now on have it.

        ``options`` are those of the index, such as ``{"fpp": "0.01"}``.  :meth:`rebuild` adds it to existing files.
        With a ``name``, ``column`` is a column or Spark SQL over one row, such as ``lower(email)``, and other engines
        neither build nor use the index; conditions that contain the expression use it.
        Raises :class:`InvalidRequest` for an index type that does not suit the column, an expression that no index can
        be of, and a name that is taken; :class:`NotFound` for an unknown column.

        >>> schema = table.indexes.create("order_id", "bloom-filter", {"fpp": "0.01"})
        >>> [(index.column, index.index_type) for index in table.indexes.list()]
        [('status', 'bitmap'), ('order_id', 'bloom-filter')]
        >>> schema = table.indexes.create("lower(status)", "bitmap", name="by_lower_status")
        >>> table.indexes.list()[-1].name
        'by_lower_status'
        """
        stored, type = self._core.stored_state().schema.options, arguments.text("an index type", type)
        index_options = option_texts(options)
        if name is not None:
            if named_keys(stored, name):
                raise AlreadyExists(f"table '{self._core.name}' has an index '{name}'; drop it first, or choose a name")
            return self._core.alter_options(declaration(name, type, column, index_options))
        added = IndexSpec(self._name_of(column), type, index_options)
        return self._core.alter_options(*changed_index_options(stored, [added], ()))

    def drop(self, column: str, type: str | None = None) -> TableSchema:
        """Stop declaring an index on a column, or all of them; existing files keep theirs until they are rewritten.

        ``column`` may be the name of an index instead.  Raises :class:`NotFound` if the column has no such index.

        >>> schema = table.indexes.drop("status")
        >>> table.indexes.list()
        []
        """
        stored = self._core.stored_state().schema.options
        named = name_of_index(stored, column)
        if named is not None:
            return self._core.alter_options({}, named_keys(stored, named))
        name = self._name_of(column)
        going = [index for index in self.list() if index.column == name and type in (None, index.index_type)]
        if not going:
            what = "no index" if type is None else f"no {type} index"
            raise NotFound(f"table '{self._core.name}': column '{name}' has {what}")
        return self._core.alter_options(*changed_index_options(stored, (), going))

    def _name_of(self, column: str) -> str:
        """A column's name as the schema spells it, or ``m[k]`` for one key of a map column."""
        name, key = split_map_key(column)
        field = self._core.schema.field(name)
        return field.name if key is None else f"{field.name}{column[len(name) :]}"

    def rebuild(self, where: str | None = None) -> Sequence[Rewritten]:
        """Build the indexes that the options declare and files lack; ``where`` narrows partitions.

        Returns the outcome for each file.  Large tables are committed a batch of files at a time: if interrupted, call
        it again to resume.

        >>> schema = table.indexes.create("amount", "range-bitmap")
        >>> table.indexes.rebuild("day = '2026-01-03'")
        [Rewritten(data-....parquet: range-bitmap(amount))]
        """
        return self._core.rebuild_indexes(where)

    def coverage(self) -> Sequence[IndexCoverage]:
        """How many of the latest snapshot's files, and of their rows, have each index that the options declare.

        Reads the header of each file's index.  :meth:`rebuild` adds what is missing.  A declaration that does not fit
        the table's columns, for example because another engine dropped one of them, comes last, with its ``problem``;
        :meth:`drop` removes it.

        >>> [(c.spec.column, c.files, c.files_indexed) for c in table.indexes.coverage()]
        [('status', 3, 3)]
        """
        return index_coverage(self._core.state())

    def advise(
        self,
        queries: Sequence[str | ScanRecord] | str | None = None,
        *,
        sample: int | None = None,
        engine: str = "spark",
    ) -> Advice:
        """Advise on the indexes, sort order, buckets and pages of this table; nothing is changed.

        ``queries``: conditions in Spark SQL (one that is given twice weighs twice), recorded scans (:meth:`scans`), or
        ``"recorded"`` for all in the table's own log.  Without them typical conditions are assumed: one value, some
        values, ranges.  ``sample``: about how many rows are read.
        ``engine``: whose reading is estimated, ``spark`` (SQL) or ``python`` (scans in this process).
        ``print`` the result, and call its ``apply()`` to build the indexes and measure the gain.

        >>> payments = lake.table("payments")
        >>> advice = payments.indexes.advise(["payment_id = 500000000"], engine="python")
        >>> print(advice)
        Advice for default.payments at snapshot 2
          table      40,000 rows in 2 files, ...
          looked at  all rows of 2 files in ... s
          asked      1 query, of scans in Python
        ...
        >>> advice = advice.apply()
        >>> [(index.column, index.index_type) for index in payments.indexes.list()]
        [('payment_id', 'bloom-filter')]
        """
        from bitlake.tools.advise.advisor import advise  # loads what most programs never use

        return advise(self._core, queries, sample, self._core.runner(), engine)

    def scans(self, most: int | None = 1000, since_ms: int | None = None) -> Sequence[ScanRecord]:
        """The last ``most`` recorded scans of this table (``connect(record_scans=True)``), oldest first.

        ``since_ms``: only those of this time and after, in milliseconds since the epoch.

        >>> table.count("status = 'NEW' AND amount > 20")
        1
        >>> table.indexes.scans()[0].where
        "status = 'NEW' AND amount > 20.0D"
        """
        return scan_log_of(self._core).read(most, since_ms)
