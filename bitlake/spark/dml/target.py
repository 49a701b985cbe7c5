"""The target of a DELETE, UPDATE or MERGE: its rows with file and position, and the values that SET assigns.

Conditions and values stay SQL text that Spark evaluates, over a view of the target's rows.  Other lake tables in the
text are read as in any query, and long lists of literals that WHERE requires are views that Spark joins.

The driver gathers matched rows into a bitmap for each data file.  For each row it receives a number that holds the
CRC-32 of the file's name and the position, and the action: no task waits for a Python worker.  Of tables with more than
:data:`DRIVER_ROWS` rows, Python workers gather the rows of each task, and the driver unites their bitmaps.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from bitlake.codec.roaring import bitmap_of, deserialize, serialize
from bitlake.engine.metadata_only import PreparedQuery, columns_of, prepare
from bitlake.engine.target import StatementTarget
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import Predicate
from bitlake.fileindex.selection import Selection
from bitlake.mergetree.dml import latest_rows
from bitlake.metadata import options as opt
from bitlake.metadata.schema import MissingColumn
from bitlake.scan.reader import FILE_PATH, PARTITION, ROW_INDEX
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.read.literal_list_views import joinable_lists, list_frame, with_list_views
from bitlake.spark.read.scan import SparkReader
from bitlake.spark.write.append import tagged
from bitlake.sql.scope import Mentions
from bitlake.sql.table_references import replace_tables
from bitlake.sql.text import SqlText
from bitlake.write.append_dml import Hits, scan_of_hits


@dataclass(frozen=True)
class Target(StatementTarget):
    """A statement's table in SQL text that Spark runs."""

    context: EngineContext
    pushed: tuple[Predicate, ...] = field(default=())
    """Conditions, bound to the schema, that rows which matter satisfy: from a MERGE's source."""
    level_0: bool = False
    """Whether rows are computed from those read, which must then be the latest (:func:`latest_rows`)."""

    @property
    def path(self) -> str:
        """The column of a row's file."""
        return f"{self.qualifier}.{FILE_PATH}"

    @property
    def index(self) -> str:
        """The column of a row's position."""
        return f"{self.qualifier}.{ROW_INDEX}"

    @property
    def source(self) -> str:
        """The target as an item of FROM."""
        name = quoted(self.database, self.name)
        return name if self.alias is None else f"{name} AS {quoted(self.alias)}"

    def query(
        self,
        before: str,
        after: str,
        *,
        positions: bool = False,
        deleted_too: bool = False,
        hits: Hits | None = None,
        refiltered: bool = False,
        read_for: SqlText | None = None,
        elsewhere: Callable[[exp.Column], bool] | None = None,
        read: Callable[[TableScan], DataFrame] | None = None,
    ) -> DataFrame:
        """The query ``[WITH …] <before> <the target> <after>``, lazy.

        With ``positions`` the target has the columns :attr:`path` (maybe just the file's name) and :attr:`index`;
        ``deleted_too`` gives the rows of its deletion vectors as well, for which Spark's own reader can be used;
        ``hits`` limits it to these rows (and some more, if ``refiltered``: the text filters them itself).
        ``read_for``: the part of the text that names all columns needed of the target, if not all of it does.
        ``elsewhere`` decides which columns of a text ``SELECT * FROM (SELECT …)`` are surely not the target's.
        ``read`` makes the target's rows; by default :meth:`SparkReader.frame` does.
        """
        head = f"{self.with_} {before} ".lstrip()
        prepared = prepare(self.context, SqlText(f"{head}{self.source} {after}".rstrip()))
        reader = SparkReader(self.context.spark, self.context.catalog.store)
        frames = []
        uses = prepared.analysis.tables
        if prepared.analysis.by_spark or any(use.file_metadata for use in uses):
            raise UnsupportedFeature(
                f"table '{self.table.name}': DELETE, UPDATE and MERGE do not take _metadata or input_file_name(); "
                f"use {FILE_PATH} and {ROW_INDEX}, or {PARTITION}"
            )
        for use, scan in zip(uses, prepared.scans, strict=True):
            if use.start != len(head):
                frames.append(reader.frame(_without_positions(scan), exact=False))
                continue
            names = tuple(c for c in scan.columns if c not in (FILE_PATH, ROW_INDEX))
            if read_for is not None:
                named = Mentions(read_for)
                names = tuple(c for c in names if named.all or c.lower() in named.words)
            if elsewhere is not None:
                names = _needed(prepared.analysis.text, names, elsewhere)
            # What is written again must be whole, whatever queries may do without.
            wanted = replace(scan, state=self.state, ignored=None, other=None, _planned=[])
            wanted = latest_rows(wanted) if self.level_0 else wanted
            for predicate in self.pushed:
                wanted = wanted.where_bound(predicate)
            wanted = wanted.select((*names, FILE_PATH, ROW_INDEX) if positions else names)
            if deleted_too:
                wanted = _with_deleted_rows(wanted)
            if hits is not None:
                wanted = scan_of_hits(wanted, hits, refiltered)
            frames.append(reader.frame(wanted, exact=False, file_names=True) if read is None else read(wanted))
        return self._over(prepared, frames)

    def _over(self, prepared: PreparedQuery, frames: Sequence[DataFrame]) -> DataFrame:
        """A query over these frames in the places of its tables."""
        context, analysis = self.context, prepared.analysis
        lists = list(joinable_lists(context, prepared))

        def over(names: Sequence[str]) -> str:
            tables, views = names[: len(frames)], names[len(frames) :]
            text = replace_tables(analysis.text, analysis.tables, tables, context.database, context.names)
            return with_list_views(text, lists, views)

        try:
            with spark_errors(f"table '{self.table.name}'"):
                return context.over([*frames, *(list_frame(context, values) for values in lists)], over)
        except MissingColumn as e:
            raise e.among(columns_of(prepared.scans)) from e.__cause__

    def scan(self, predicate: Predicate | None) -> TableScan:
        """The target's rows that satisfy a predicate bound to its schema."""
        scan = self.table.scan_of(self.state)
        scan = latest_rows(scan) if self.level_0 else scan
        return scan if predicate is None else scan.where_bound(predicate)


def _needed(text: SqlText, columns: Sequence[str], elsewhere: Callable[[exp.Column], bool]) -> tuple[str, ...]:
    """Those of the columns that a query ``SELECT * FROM (SELECT …)`` may name, apart from what is ``elsewhere``."""
    tree = text.tree
    if not isinstance(tree, exp.Select) or len(list(tree.find_all(exp.Star))) > 1 or "IDENTIFIER" in text.words:
        return tuple(columns)
    named = {part.name.lower() for c in tree.find_all(exp.Column) if not elsewhere(c) for part in c.parts}
    return tuple(c for c in columns if c.lower() in named)


def _with_deleted_rows(scan: TableScan) -> TableScan:
    """The scan without the deletion vectors of files that are read as they are; it must not be refined.

    Raises :class:`InvalidRequest` where rows are merged.
    """
    if not scan.state.schema.primary_keys:
        options = {**scan.state.schema.options, opt.DV_ENABLED.name: "false"}
        return replace(scan, state=replace(scan.state, schema=replace(scan.state.schema, options=options)), _planned=[])
    plan = scan.plan()
    if any(f.merge is not None for f in plan.files):
        raise InvalidRequest(f"table '{scan.state.name}': rows are merged to be read")
    whole = {id(f) for f in plan.files if f.deleted and f.chosen_rows + f.deleted == f.row_count}
    files = [replace(f, selection=Selection.all(), deleted=0) if id(f) in whole else f for f in plan.files]
    return replace(scan, _planned=[replace(plan, files=tuple(files))])


def _without_positions(scan: TableScan) -> TableScan:
    """A scan of another table than the target, without the metadata columns that the text names for the target."""
    left: Sequence[str] = [c for c in scan.columns if c not in (FILE_PATH, ROW_INDEX)]
    return scan if len(left) == len(scan.columns) else scan.select(left)


DRIVER_ROWS = 1 << 23
"""Rows that the driver gathers itself, at most 100 MB of numbers.  4,000 hits among 4M rows, processor time, two busy
cores: the first DELETE of a session takes 3.1 s, and 8.3 with Python workers (4.5 of it theirs, to start)."""
_POSITION_BITS = 32
_LIMIT = 1 << _POSITION_BITS
_TWICE = -1
_RESULT = "file string, action int, rows binary"


@dataclass(slots=True)
class Gathered:
    """Rows by what is done to them (a number) and data file; ``twice`` are those that were found more than once."""

    by_action: dict[int, dict[str, BitMap]] = field(default_factory=dict)
    twice: dict[str, BitMap] = field(default_factory=dict)

    @property
    def hits(self) -> dict[str, BitMap]:
        """All rows by data file."""
        out: dict[str, BitMap] = {}
        for files in self.by_action.values():
            for name, rows in files.items():
                out[name] = out[name] | rows if name in out else rows
        return out

    def add(self, name: str, action: int, rows: BitMap) -> None:
        """Add rows found by one task."""
        for files in self.by_action.values():
            if name in files and (both := files[name] & rows):
                self.twice[name] = self.twice.get(name, BitMap()) | both
        files = self.by_action.setdefault(action, {})
        files[name] = files[name] | rows if name in files else rows


def gather(frame: DataFrame, doing: str, state: TableState, *, once: bool = False) -> Gathered:
    """Run a query of (file path or name, position, action) rows of a table and gather them.

    ``doing`` says what for, in errors; ``once``: the query gives each row at most once.
    """
    files = _small_files(state)
    if files is not None:
        rows = sum(files.values())
        packed = _packed(frame if once else frame.limit(rows + 1))
        with spark_errors(doing), tagged(frame.sparkSession):
            found = packed.toArrow()
        if found.num_rows <= rows:
            return gathered(_unpacked(found, files))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _gather(batches)

    with spark_errors(doing), tagged(frame.sparkSession):
        return _united(frame.mapInArrow(work, _RESULT).toArrow().to_batches())


def _small_files(state: TableState) -> dict[str, int] | None:
    """The rows of each file by its name, of a table whose rows the driver gathers; None for a larger one.

    None, too, if two names have the same CRC-32.
    """
    snapshot = state.snapshot
    if snapshot is not None and snapshot.total_record_count > DRIVER_ROWS:
        return None  # of many files the sum would take its time
    files = {e.file.file_name: e.file.row_count for e in state.entries()}
    small = sum(files.values()) <= DRIVER_ROWS and len({_crc(name) for name in files}) == len(files)
    return files if small else None


def _crc(name: str) -> int:
    return zlib.crc32(name.encode())


def _packed(frame: DataFrame) -> DataFrame:
    """The rows of a query of (file, position, action) as (file and position, action), two numbers."""
    name = F.substring_index("file", "/", -1)
    place = F.shiftleft(F.crc32(name.cast("binary")), _POSITION_BITS).bitwiseOR(F.col("position"))
    return frame.select(place.alias("place"), F.col("action").cast("int").alias("action"))


def _unpacked(rows: pa.Table, files: Iterable[str]) -> pa.Table:
    """The rows of :func:`_packed` as (file, position, action)."""
    names = sorted(files, key=_crc)
    places = rows.column("place").to_numpy().view(np.uint64)
    crcs = np.array([_crc(name) for name in names], np.uint64)
    hashes = places >> np.uint64(_POSITION_BITS)
    codes = np.searchsorted(crcs, hashes)
    if (crcs.take(codes, mode="clip") != hashes).any():
        raise AssertionError("a matched row is of a file that the table does not have")
    file = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string()))
    positions = (places & np.uint64((1 << _POSITION_BITS) - 1)).astype(np.int64)
    return pa.table({"file": file, "position": positions, "action": rows.column("action")})


def gathered(rows: pa.Table) -> Gathered:
    """Gather rows of (file path or name, position, action) that the driver has."""
    return _united(_gather(iter(rows.combine_chunks().to_batches())))


def _united(batches: Iterable[pa.RecordBatch]) -> Gathered:
    out = Gathered()
    # One row for each file, action and task.
    results = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    for name, action, data in results:
        rows = deserialize(memoryview(data), _LIMIT)[0]
        if action == _TWICE:
            out.twice[name] = out.twice.get(name, BitMap()) | rows
        else:
            out.add(name, action, rows)
    return out


def _gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: a bitmap for each file and action, and one of the rows that came twice."""
    hits: dict[tuple[str, int], BitMap] = {}
    seen: dict[str, BitMap] = {}
    twice: dict[str, BitMap] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        files = batch.column(0).dictionary_encode()
        codes = files.indices.to_numpy(zero_copy_only=False)
        positions = batch.column(1).to_numpy(zero_copy_only=False)
        actions = batch.column(2).to_numpy(zero_copy_only=False)
        names = [p.rsplit("/", 1)[-1] for p in files.dictionary.to_pylist()]
        order = np.lexsort((positions, actions, codes))
        codes, actions, positions = codes[order], actions[order], positions[order]
        cuts = np.flatnonzero((np.diff(codes) != 0) | (np.diff(actions) != 0)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(codes)], strict=True):
            name, action, part = names[codes[start]], int(actions[start]), positions[start:end]
            rows = bitmap_of(part)
            repeated = part[1:][part[1:] == part[:-1]]
            before = seen.get(name, BitMap())
            again = (before & rows) | bitmap_of(repeated)
            if again:
                twice[name] = twice.get(name, BitMap()) | again
            seen[name] = before | rows
            known = hits.get((name, action))
            hits[name, action] = rows if known is None else known | rows
    results = [(n, a, r) for (n, a), r in hits.items()] + [(n, _TWICE, r) for n, r in twice.items()]
    if results:
        yield pa.record_batch(
            {
                "file": pa.array([n for n, _, _ in results], pa.string()),
                "action": pa.array([a for _, a, _ in results], pa.int32()),
                "rows": pa.array([serialize(r) for _, _, r in results], pa.binary()),
            }
        )
