"""A scan as a Spark DataFrame, read in the cheapest of three ways; and changes as rows with their kinds.

* few chosen bytes: the driver reads them page by page into a local relation; no scan job runs at all;
* whole files: Spark's own vectorised Parquet reader over the files of the plan, with a filter over those that have a
  deletion vector; those of an object store too, if the session has a Hadoop connector for it;
* chosen rows of many files: page-selective reads in Python on the executors (``mapInArrow`` over the files).

The last two are united where a plan has both.  The query's own filters run on every result.

Spark's own reader supplies ``_metadata``; for files that Python reads, the values are computed here.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature, reading_table
from bitlake.expressions.sql_text import quoted
from bitlake.expressions.tree import Comparison, In, Op, Predicate, conjuncts, sources_of
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.fileindex.selection import Selection
from bitlake.formats.file_format import format_of
from bitlake.io import Store
from bitlake.io.base import request_runner, scheme_of
from bitlake.metadata import options as opt
from bitlake.runtime import Cache, CacheName, Caches, LocalRunner
from bitlake.scan.column_reader import FileTask, ReadCounts
from bitlake.scan.incremental import ChangeScan, ChangeTask, read_changes
from bitlake.scan.plan import Plan, PlannedFile
from bitlake.scan.read_ahead import files_at_once
from bitlake.scan.reader import (
    BUCKET,
    DRIVER_BYTES,
    DRIVER_FILES,
    DRIVER_ROWS,
    FILE_PATH,
    PARTITION,
    ROW_INDEX,
    SELECTIVE_SHARE,
    WHOLE_DRIVER_BYTES,
    ReadRequest,
    read_file,
    tasks_of,
)
from bitlake.scan.scan import TableScan
from bitlake.schema.evolution import map_fields
from bitlake.spark.hadoop_path import Connectors, file_uri, hadoop_path, hadoop_pattern, is_hidden, uri_name
from bitlake.spark.read.deleted_rows import can_mask, is_read, mask_key
from bitlake.spark.read.local_relation import local_frame
from bitlake.spark.runner import SparkRunner, few_listing_tasks, read_packed
from bitlake.spark.types import char_metadata, nullable, spark_arrow_schema, spark_schema, spark_type
from bitlake.sql.file_metadata import METADATA
from bitlake.types.datatypes import AtomicType, DataField, Root
from bitlake.write.append_dml import matching_rows

_ANY_PARTITIONS = 1 << 30
RANGE_ROWS = 50_000
"""More rows of pages or whole files than this may be many that match; fewer are read here unseen."""
LOCAL_ROWS = 20_000
"""Rows that match, or groups of aggregates, beyond which Spark's own job is quicker.  A month of lineitem, 75,000 rows
of four columns in a page range: 0.72 s through the driver, where each row costs 5 to 7 µs on its way to Spark, and
0.25 s by Spark's reader."""
LONG_LIST = 2_000
"""A list of more values than this is a view for Spark (:mod:`bitlake.spark.read.literal_list_views`), whose join takes
long."""
POINT_ROWS = 1_000_000
"""The most rows whose condition is evaluated here because it requires a value of a column.  A million rows take 30 ms,
where a job takes half a second; the time is lost if many rows have the value."""
_ADDED_TIMES, _POINT_TIMES = 2, 5
"""The most rows that the driver reads for aggregates, as multiples of :data:`DRIVER_ROWS`: in general, and under a
condition on values, which few of the rows may meet.  Only the groups go to Spark."""
JUDGED_ROWS = 2_000_000
"""The most rows for which the driver evaluates a condition, to count the rows that match: some 60 ms at most."""

_SPARKS = (FILE_PATH, ROW_INDEX)
"""Metadata columns that Spark's Parquet reader has too, as ``_metadata``."""

_MOST_NUMBERED = 1000
"""More paths than this would make the query's own text large."""
SMALL_BYTES = 1 << 20
"""Files of up to this many bytes in all are a small table: what was read of one stays for the next query over it."""
_SMALL: CacheName[tuple[object, ...], DataFrame] = CacheName("local relations", 32 << 20)
"""Local relations of small tables, by bytes of Arrow; the JVM holds them."""
_FRAME_BYTES, _PATH_BYTES = 1 << 20, 512
"""Bytes of a file relation's plan in the JVM, and of each of its files."""
_FRAMES: CacheName[tuple[object, ...], DataFrame] = CacheName("file relations", 64 << 20)
"""File relations by their files; the JVM holds them."""
_LASTING: CacheName[int, weakref.ref[DataFrame]] = CacheName("cached frames", 64 << 10)
"""The frames of both caches by their ids."""
_REFERENCE_BYTES = 256


def is_lasting(caches: Caches, frame: DataFrame) -> bool:
    """Whether the same frame will be given again for the same files."""
    reference = caches[_LASTING].get(id(frame))
    return reference is not None and reference() is frame


@dataclass(frozen=True, slots=True)
class ReadChoice:
    """The way in which a plan's files are read on Spark."""

    driver: Sequence[PlannedFile]
    native: Sequence[PlannedFile]
    selective: Sequence[PlannedFile]
    masked: Sequence[PlannedFile] = ()
    """Files for Spark's reader with a filter that leaves out deleted rows."""

    def without_native(self, excluded: Callable[[PlannedFile], bool]) -> ReadChoice:
        """The choice with these files read by Python workers instead of by Spark's reader."""
        native, masked = (tuple(f for f in files if not excluded(f)) for files in (self.native, self.masked))
        moved = filter(excluded, (*self.native, *self.masked))
        return replace(self, native=native, masked=masked, selective=(*self.selective, *moved))


def _is_local(file: PlannedFile) -> bool:
    return scheme_of(file.path) == "file"


def choose(
    plan: Plan,
    limited: bool = False,
    by_spark: bool = False,
    spark_reads: Callable[[PlannedFile], bool] = _is_local,
) -> ReadChoice:
    """Decide by bytes: what is small comes through the driver, what is whole through Spark's reader.

    Spark's reader also gets whole files of many rows, and ranges of rows that it finds by the same bounds of pages, if
    many may match, unless few of them are taken: ``limited``.  The option ``read.spark-path`` forces one way;
    ``by_spark`` takes Spark's reader wherever it can read a file.  ``spark_reads``: whether Spark has a client of the
    system where a file is.
    """
    forced = plan.schema.opts.of(opt.SPARK_READ_PATH)
    if by_spark and forced == "auto":
        forced = "spark"
    if forced == "driver" or not plan.files:
        return ReadChoice(plan.files, (), ())
    if forced == "workers":
        return ReadChoice((), (), plan.files)
    special = any(c in (PARTITION, BUCKET) for c in plan.columns)
    few = plan.chosen_rows <= DRIVER_ROWS and len(plan.files) <= DRIVER_FILES
    cost = sum(chosen_bytes(f) for f in plan.files) if few else 0
    few = few and cost <= DRIVER_BYTES
    picked = any(not f.whole for f in plan.files)
    on_driver = forced == "auto" and (
        (not plan.columns and plan.predicate is None)
        or (few and (picked or special or _positions(plan.columns) or cost <= WHOLE_DRIVER_BYTES))
    )
    # Each row takes 5 µs on its way through the driver: Spark's reader reads many rows sooner, as of a whole file.
    many = not limited and plan.chosen_rows > RANGE_ROWS and len(plan.columns) > 0
    many = many and all(f.by_pages or f.whole for f in plan.files)
    if on_driver and not many:
        return ReadChoice(plan.files, (), ())
    native: list[PlannedFile] = []
    masked: list[PlannedFile] = []
    selective: list[PlannedFile] = []
    native_types = _native_types(plan)
    by_name = {i: _same_columns(plan, i) for i in {f.entry.file.schema_id for f in plan.files}}
    for f in plan.files:
        # Spark's reader looks at the bounds of pages, too.
        sparse = forced == "auto" and f.chosen_rows <= f.row_count * SELECTIVE_SHARE and not f.by_pages
        # Spark's reader does not merge rows.
        foreign = f.merge is not None or format_of(f.path) != "parquet"
        foreign = foreign or not native_types or not by_name[f.entry.file.schema_id]
        foreign = foreign or _lacks_partition(plan, f) or is_hidden(f.path) or not (sparse or special or spark_reads(f))
        (selective if sparse or special or foreign else masked if f.deleted else native).append(f)
    if masked and (by_spark or not can_mask(plan, masked)):
        selective, masked = selective + masked, []
    if on_driver and (selective or masked):
        return ReadChoice(plan.files, (), ())
    return ReadChoice((), tuple(native), tuple(selective), tuple(masked))


def looked_at(scan: TableScan) -> TableScan:
    """The scan, of known rows where few may match: in pages far apart, in small files, by a value or a long list.

    How few rows of whole files and of these pages match is not known before their values are seen, and Spark's reader
    asks bounds only for lists of up to ten values.  So the condition's columns are read here, if that is soon done.
    What has many rows that match stays as it is, and so does a limited scan.
    """
    plan = scan.plan()
    if scan.predicate is None or scan.row_limit is not None:
        return scan
    small, listed = plan.chosen_rows <= DRIVER_ROWS, _listed(scan.predicate)
    unsure = [f for f in plan.files if f.by_pages or (f.merge is None and not f.selection.exact)]
    point = len(unsure) <= DRIVER_FILES and sum(f.chosen_rows for f in unsure) <= POINT_ROWS
    point = point and _is_point(scan.predicate)
    unseen = unsure if small or listed or point else [f for f in unsure if f.by_pages]
    if not unseen or choose(plan).driver:
        return scan
    share = len(sources_of(scan.predicate)) / len(plan.schema.fields)
    if sum(f.chosen_rows for f in unseen) > JUDGED_ROWS or sum(map(chosen_bytes, unseen)) * share > DRIVER_BYTES:
        return scan
    apart = any(f.by_pages and _far_apart(f) for f in unseen)
    if not apart and not small and not listed and not point:
        return scan
    request = ReadRequest(scan.state.schema, (ROW_INDEX,), scan.predicate, scan.timezone, scan.ignored)
    with reading_table(scan.state.name):
        found = LocalRunner().run(tasks_of(unseen, plan.schemas), partial(matching_rows, scan.store, request))
    # On Spark, two values of a list take about as long as a row that comes from here.
    if not apart and sum(map(len, found)) > LOCAL_ROWS + listed // 2:
        return scan
    rows = {f.path: Selection.of(hits, True) for f, hits in zip(unseen, found, strict=True)}
    files = [replace(f, selection=rows[f.path], by_pages=False) if f.path in rows else f for f in plan.files]
    left = tuple(f for f in files if not f.selection.is_empty)
    seen = replace(plan, files=left)
    if (listed or point) and not choose(seen).driver:
        return scan
    plan.metrics.files_read, plan.metrics.rows_chosen = len(left), sum(f.chosen_rows for f in left)
    return replace(scan, _planned=[seen])


def is_soon_read(scan: TableScan, columns: Collection[str]) -> bool:
    """Whether the driver reads these columns, and those of the condition, sooner than a job would start.

    400,000 rows of two columns are read and added up in 0.07 to 0.14 s, in few groups; a job takes 0.2 to 0.4 s.
    """
    plan, predicate = scan.plan(), scan.predicate
    point = predicate is not None and _is_point(predicate)
    most = (_POINT_TIMES if point else _ADDED_TIMES) * DRIVER_ROWS
    if len(plan.files) > DRIVER_FILES or plan.chosen_rows > most:
        return False
    return read_bytes(scan, columns, most) <= DRIVER_BYTES


def read_bytes(scan: TableScan, columns: Collection[str], most: int) -> float:
    """About how many bytes of a scan's files these columns take, and those of its condition; each has an equal part.

    All of a file of which more than ``most`` rows are chosen.
    """
    plan, predicate = scan.plan(), scan.predicate
    used = {*columns, *(() if predicate is None else sources_of(predicate))}
    return sum(chosen_bytes(f, most) for f in plan.files) * len(used) / max(1, len(plan.schema.fields))


def _is_point(predicate: Predicate) -> bool:
    """Whether a condition requires that a column has one of a few values."""
    required = conjuncts(predicate)
    return any((isinstance(t, Comparison) and t.op is Op.EQ) or (isinstance(t, In) and not t.negated) for t in required)


def _listed(predicate: Predicate) -> int:
    """The number of values of the longest long list that a condition requires; 0 without one."""
    most = max((len(t.values) for t in conjuncts(predicate) if isinstance(t, In) and not t.negated), default=0)
    return most if most > LONG_LIST else 0


def _far_apart(file: PlannedFile) -> bool:
    """Whether a file's chosen pages mostly stand alone: those of a range are side by side."""
    pages = np.unique(file.selection.positions(file.row_count) // PAGE_ROWS)
    runs = np.count_nonzero(np.diff(pages, prepend=-2) > 1)
    return bool(4 * runs >= len(pages) > 4)


def _lacks_partition(plan: Plan, file: PlannedFile) -> bool:
    """Whether a file may lack partition columns that are asked for: those of :mod:`bitlake.table.migrate` do.

    Their statistics are of the columns that they hold; other files without statistics of any column hold all.
    """
    known = file.entry.file.value_stats_cols
    return known is not None and any(k in plan.columns and k not in known for k in plan.schema.partition_keys)


def _positions(columns: Sequence[str]) -> bool:
    """Whether columns ask where rows are, which Spark's Parquet reader tells too."""
    return any(c in _SPARKS for c in columns)


def _spark_column(name: str, root: str | None, escaped: bool) -> Column:
    """A column of Spark's own Parquet reader; where rows are, under Paimon's names.

    ``root`` is the folder of all files, as their paths have it; without it, a file's path is just its name.
    ``escaped``: a URI escapes characters of some of the names.
    """
    if name == ROW_INDEX:
        return F.col("_metadata.row_index").alias(name)
    if name != FILE_PATH:
        return F.col(quoted(name))
    if root is None:
        return (_decoded("_metadata.file_name") if escaped else F.col("_metadata.file_name")).alias(name)
    local = F.regexp_replace(_decoded("_metadata.file_path"), "^file:/*", "/")
    inside = len(hadoop_path(root).removeprefix("file:")) + 1
    return F.concat(F.lit(root), F.substring(local, inside, 1 << 30)).alias(name)


def _decoded(column: str) -> Column:
    """A part of a URI as text; url_decode takes a plus sign for a space, in the URI it is a plus sign."""
    return F.url_decode(F.replace(column, F.lit("+"), F.lit("%2B")))


def chosen_bytes(file: PlannedFile, most: int | None = None) -> int:
    """About how many bytes the pages that hold chosen rows take, if pages are as large as bitlake's own.

    The file's size if more than ``most`` rows are chosen (None: :data:`DRIVER_ROWS`).
    """
    if file.whole or file.chosen_rows > (DRIVER_ROWS if most is None else most) or format_of(file.path) != "parquet":
        return file.entry.file.file_size
    pages = len(np.unique(file.selection.positions(file.row_count) // PAGE_ROWS))
    return math.ceil(file.entry.file.file_size * min(1.0, pages * PAGE_ROWS / file.row_count))


def _native_types(plan: Plan) -> bool:
    """Whether Spark's own Parquet reader has all the types (it has no TIME and no unshredded multiset)."""
    return all(_is_native(f) for f in plan.schema.fields if f.name in plan.columns)


def _is_native(field: DataField) -> bool:
    return not (isinstance(field.type, AtomicType) and field.type.root in (Root.TIME, Root.VARIANT))


def _same_columns(plan: Plan, written: int) -> bool:
    """Whether Spark's reader, which goes by name, finds the plan's columns in files of a schema, or none so called."""
    if written == plan.schema.id:
        return True
    stored = plan.schemas[written].fields
    wanted = [f for f in plan.schema.fields if f.name in plan.columns]
    mapping = map_fields(wanted, stored)
    names = {f.name.lower() for f in stored}
    missing = [name for name, source in mapping.fields.items() if source is None]
    present = [f for f in wanted if f.name not in missing]
    # A column added under a dropped one's name must not read the old values.
    return not any(name.lower() in names for name in missing) and map_fields(present, stored).identical


class SparkReader:
    """Turns scans into DataFrames of one session.

    ``projects_subqueries``: a query may select subqueries from the DataFrames.
    """

    def __init__(self, spark: SparkSession, store: Store, *, projects_subqueries: bool = False) -> None:
        self._spark = spark
        self._store = store
        self._projects_subqueries = projects_subqueries
        self._connectors = Connectors(spark, store)
        self._executors = partial(SparkRunner, spark)

    def choose(self, scan: TableScan) -> ReadChoice:
        """Choose how :meth:`frame` reads the files of a scan whose condition is fully applied by pruning."""

        def spark_reads(file: PlannedFile) -> bool:
            return self._connectors.spark_path(file.path, file.entry.file.file_size) is not None

        scan = scan.planned_by(self._executors)
        return choose(scan.plan(), scan.row_limit is not None, spark_reads=spark_reads)

    def frame(self, scan: TableScan, exact: bool = True, file_names: bool = False) -> DataFrame:
        """The scan's rows; the plan is made here, the data is read when Spark needs it (or now, if it is little).

        Not ``exact``: at least these rows, in any order, for a query that filters, sorts and limits them itself.
        ``file_names``: a file's path may be just its name, which costs Spark no work for each row.
        """
        return self._frame(scan, exact, file_names)[0]

    def candidates(self, scan: TableScan) -> tuple[DataFrame, bool]:
        """Like :meth:`frame`, not exact; and whether the rows are known to be just those that meet the condition."""
        return self._frame(scan, exact=False)

    def _frame(self, scan: TableScan, exact: bool, file_names: bool = False) -> tuple[DataFrame, bool]:
        scan = scan.planned_by(self._executors)
        plan = scan.plan()
        if isinstance(scan, ChangeScan):
            size = sum(f.entry.file.file_size for f in plan.files)
            few = plan.chosen_rows <= DRIVER_ROWS and len(plan.files) <= DRIVER_FILES and size <= DRIVER_BYTES
            forced = plan.schema.opts.of(opt.SPARK_READ_PATH)
            on_driver = few if forced == "auto" else forced == "driver"
            return changes_frame(self._spark, scan, frame_schema(scan), on_driver), False
        scan = looked_at(scan)
        plan = scan.plan()
        choice = self.choose(scan)
        if scan.ignored is not None:
            # Spark's reader also leaves out files for errors that may pass, and of lost ones only those listed before.
            choice = choice.without_native(lambda f: True)
        if exact and scan.predicate is not None:  # Spark's reader filters nothing
            choice = choice.without_native(lambda f: not (f.selection.exact and (f.whole or f.deleted)))
        root = None if file_names or FILE_PATH not in plan.columns else scan.state.paths.root
        if root is not None:
            choice = choice.without_native(lambda f: not (_is_local(f) and f.path.startswith(f"{root}/")))
        types = frame_schema(scan)
        if not plan.files and types.fields:
            return self._empty(scan, types), True
        if choice.driver or not plan.files:
            return self._small(scan, types) or self.local(scan, types), True
        scan.record("spark", was_read=False)
        parts = []
        if choice.native:
            parts.append(self._native(plan, choice.native, types, root))
        if choice.masked:
            parts.append(self._native(plan, choice.masked, types, root, masked=True))
        if choice.selective:
            parts.append(self._selective(scan, plan, choice.selective, types))
        frame = self._union(parts)
        return (_limited(frame, scan) if exact and scan.row_limit is not None else frame), False

    def frame_with_files(self, scan: TableScan, fields: Sequence[str], by_spark: bool = False) -> DataFrame:
        """At least the scan's rows, in any order, with these members of ``_metadata`` as a column of that name.

        ``by_spark``: the query has ``input_file_name()`` or the like, which Spark's own reader must set.  Raises
        :class:`UnsupportedFeature` for rows of no single file, and for files that Spark's reader does not read.
        """
        if type(scan) is not TableScan:
            raise UnsupportedFeature(f"table '{scan.state.name}' has no data files for _metadata or input_file_name()")
        scan = looked_at(scan.planned_by(self._executors))
        plan = scan.plan()
        if any(f.merge is not None for f in plan.files):
            raise UnsupportedFeature(
                f"table '{scan.state.name}': rows are merged from several files, so _metadata and input_file_name() "
                f"are not defined; compact the table first: CALL sys.compact(table => '{scan.state.name}')"
            )
        types = frame_schema(scan)
        choice = choose(plan, by_spark=by_spark)
        if scan.ignored is not None:
            choice = choice.without_native(lambda f: True)
        others = len(choice.driver) + len(choice.selective)
        if by_spark and others:
            raise UnsupportedFeature(
                f"table '{scan.state.name}': input_file_name() must stand in a SELECT whose FROM is the table alone; "
                f"{others} of {len(plan.files)} files are not read by Spark's reader"
            )
        if not choice.driver:
            scan.record("spark", was_read=False)
        parts = []
        root = scan.state.paths.root if FILE_PATH in plan.columns else None
        if choice.native:
            parts.append(self._native(plan, choice.native, types, root, tuple(fields)))
        if choice.masked:
            parts.append(self._native(plan, choice.masked, types, root, tuple(fields), masked=True))
        rest = choice.driver or choice.selective
        if rest or not plan.files:
            added = [c for c in (FILE_PATH, ROW_INDEX) if c not in scan.columns]
            wider = replace(scan.select((*scan.columns, *added)), _planned=[])
            wide = frame_schema(wider)
            rows = self._selective(wider, plan, rest, wide) if choice.selective else self.local(wider, wide)
            parts.append(self._beside_files(rows, rest, types, fields))
        return self._union(parts)

    def _union(self, parts: Sequence[DataFrame]) -> DataFrame:
        """The rows of a few DataFrames.

        Spark's rule PushProjectionThroughUnion fails for a projection with a correlated subquery ("key not found").
        A coalesce to more partitions than there are moves no row and stops the rule; filters and columns pass.
        """
        if len(parts) == 1:
            return parts[0]
        union = reduce(DataFrame.unionByName, parts)
        return union.coalesce(_ANY_PARTITIONS) if self._projects_subqueries else union

    def _beside_files(
        self, rows: DataFrame, files: Sequence[PlannedFile], types: T.StructType, fields: Sequence[str]
    ) -> DataFrame:
        """Rows with their file and position, as columns of these types and ``_metadata``."""
        columns = [rows[quoted(f.name)] for f in types.fields]
        if not fields:
            return rows.select(*columns)
        known = local_frame(self._spark, *file_rows(self._store, files, fields))
        members = [(rows[ROW_INDEX] if f == "row_index" else known[f]).alias(f) for f in fields]
        joined = rows.join(F.broadcast(known), rows[FILE_PATH] == known[KEY])
        return joined.select(*columns, F.struct(*members).alias(METADATA))

    def local(self, scan: TableScan, types: T.StructType) -> DataFrame:
        """Read the scan on the driver into a local relation."""
        if not types.fields:
            # Only the number of rows is asked for; an Arrow table without columns could not carry it to Spark.
            return self._spark.range(0, scan.count(), 1, 1).select()
        return local_frame(self._spark, scan.to_arrow(), types)

    def _empty(self, scan: TableScan, types: T.StructType) -> DataFrame:
        rows = scan.to_arrow()  # recorded as a scan
        # A system table has rows, and no files.
        return local_frame(self._spark, rows, types) if rows.num_rows else self.without_rows(types)

    def without_rows(self, types: T.StructType) -> DataFrame:
        """The DataFrame without rows that all queries over these types share; its view is reused."""
        key = (id(self._spark), types.json())
        cache = self._store.caches[_SMALL]
        frame = cache.get(key)
        if frame is None:
            frame = local_frame(self._spark, spark_arrow_schema(types).empty_table(), types)
            self._keep(cache, key, frame, _PATH_BYTES)
        return frame

    def _small(self, scan: TableScan, types: T.StructType) -> DataFrame | None:
        """The same frame for the same rows of a small table, so that a dimension is not read for each query."""
        rows_key = small_key(scan)
        if rows_key is None or not types.fields:
            return None
        key = (id(self._spark), types.json(), *rows_key)
        cache = self._store.caches[_SMALL]
        kept = cache.get(key)
        if kept is None:
            rows = scan.to_arrow()
            kept = local_frame(self._spark, rows, types)
            self._keep(cache, key, kept, rows.nbytes)
        return kept

    def _native(
        self,
        plan: Plan,
        files: Sequence[PlannedFile],
        types: T.StructType,
        root: str | None,
        fields: Sequence[str] = (),
        masked: bool = False,
    ) -> DataFrame:
        """Spark's Parquet reader over the files; nothing of them is read before the query runs.

        ``root``: see :func:`_spark_column`.  ``fields``: the members of ``_metadata`` to give as a column of that name.
        ``masked``: only the rows of the files' selections.
        """
        paths = tuple(f.path for f in files)
        key = (id(self._spark), types.json(), paths, root, tuple(fields), mask_key(files) if masked else None)
        cache = self._store.caches[_FRAMES]
        found = cache.get(key)
        if found is None:
            # With all columns: by their share, Spark estimates what a query's own take, and which side to broadcast.
            stored = _stored(plan, types)
            # The folder names are not partitions to be discovered: each file holds all its columns itself.
            reader = self._spark.read.schema(stored).option("recursiveFileLookup", "true")
            request_runner(self._store, paths[0]).run(files, partial(_check_size, self._store))
            # Names may hold any character.  Quoted: with `__globPaths__` off, Spark 4.1 to 4.3 list *all* paths again
            # for each that looks like a pattern, and 2,000 of them fill the heap.
            with few_listing_tasks(self._spark, len(paths)):
                found = reader.parquet(*[hadoop_pattern(self._spark_path(f)) for f in files])
            found = with_not_null(self._spark, found, stored.names, {f.name for f in types.fields if not f.nullable})
            size = _FRAME_BYTES + _PATH_BYTES * len(paths)
            if masked:
                condition, mask_bytes = is_read(self._spark, files)
                found, size = found.where(condition), size + mask_bytes
            if stored != types or fields:
                escaped = any(not p.endswith("/" + uri_name(p)) for p in paths)
                columns = [_spark_column(f.name, root, escaped) for f in types.fields]
                if fields:
                    columns.append(F.struct(*[F.col(f"{METADATA}.{f}").alias(f) for f in fields]).alias(METADATA))
                found = found.select(*columns)
            self._keep(cache, key, found, size)
        return found

    def _spark_path(self, file: PlannedFile) -> str:
        return self._connectors.spark_path(file.path, file.entry.file.file_size) or file.path

    def _keep(
        self, cache: Cache[tuple[object, ...], DataFrame], key: tuple[object, ...], frame: DataFrame, size: int
    ) -> None:
        cache.put(key, frame, size)
        self._store.caches[_LASTING].put(id(frame), weakref.ref(frame), _REFERENCE_BYTES)

    def _selective(self, scan: TableScan, plan: Plan, files: Sequence[PlannedFile], types: T.StructType) -> DataFrame:
        """Page-selective reads in Python workers, a task for every few files."""
        request = ReadRequest(scan.state.schema, scan.columns, scan.predicate, scan.timezone, scan.ignored)
        reads = tasks_of(files, plan.schemas)
        store = self._store
        # Paths are long: rows bring their file's number, and Spark looks it up.
        numbered = FILE_PATH in scan.columns and len(reads) <= _MOST_NUMBERED
        at = scan.columns.index(FILE_PATH) if numbered else -1
        sent = T.StructType([T.StructField(f.name, T.IntegerType()) if f.name == FILE_PATH else f for f in types])
        sent = sent if numbered else types

        def rows_of(number: int, task: FileTask) -> Iterator[pa.Table]:
            for table in read_file(store, task, request, ReadCounts()):
                if numbered:
                    table = table.set_column(at, FILE_PATH, pa.repeat(pa.scalar(number, pa.int32()), len(table)))
                yield table

        stored = [_column(f) for f in plan.schema.fields]
        share = min(1.0, _width(sent.fields) / _width(stored)) if stored else 1.0
        sizes, at_once = [t.chosen_bytes for t in reads], files_at_once(store, reads, least=1)
        frame = read_packed(self._spark, reads, sizes, sent, rows_of, share, at_once)
        if not numbered:
            return frame
        paths = F.array(*[F.lit(f.path) for f in files])
        return frame.withColumn(FILE_PATH, F.get(paths, F.col(FILE_PATH)))


def small_key(scan: TableScan) -> tuple[object, ...] | None:
    """What the rows of a scan follow from, if it reads whole files of a small table; None for all others.

    Files never change, and a snapshot's delta manifest list, which no other snapshot has, identifies its files.  ALTER
    makes another schema without a snapshot.
    """
    plan, snapshot = scan.plan(), scan.state.snapshot
    whole = all(f.whole and f.merge is None for f in plan.files)
    if snapshot is None or not whole or type(scan) is not TableScan:
        return None
    if sum(f.entry.file.file_size for f in plan.files) > SMALL_BYTES:
        return None
    what = (scan.columns, scan.predicate, scan.row_limit, scan.order, scan.timezone, scan.ignored)
    return scan.state.schema.id, snapshot.delta_manifest_list, tuple(f.path for f in plan.files), what


_WIDTHS: dict[type[T.DataType], int] = {
    T.BooleanType: 1,
    T.ByteType: 1,
    T.ShortType: 2,
    T.IntegerType: 4,
    T.FloatType: 4,
    T.DateType: 4,
    T.StringType: 20,
    T.BinaryType: 100,
}


def _width(fields: Sequence[T.StructField]) -> int:
    """About how many bytes of a row Spark takes these columns for."""
    return sum(_WIDTHS.get(type(f.dataType), 8) for f in fields)


def _check_size(store: Store, file: PlannedFile) -> None:
    """Refuse a file that Spark would read as one without rows: a missing one whose name is a pattern, an empty one."""
    size, known = store.size(file.path), file.entry.file.file_size
    if size != known:
        raise CorruptError(f"the file has {size:,} bytes, and the manifest says {known:,}", None, file.path)


def _limited(frame: DataFrame, scan: TableScan) -> DataFrame:
    """The first rows of a scan, in its order."""
    keys = []
    for order in scan.order:
        for source in order.sources:
            if source not in scan.columns:
                raise InvalidRequest(f"select '{source}' too, which the rows are ordered by, to sort them in Spark")
        column = F.col(quoted(order.column)) if order.sources == (order.column,) else F.expr(order.sql)
        if order.descending:
            keys.append(column.desc_nulls_first() if order.nulls_first else column.desc_nulls_last())
        else:
            keys.append(column.asc_nulls_first() if order.nulls_first else column.asc_nulls_last())
    assert scan.row_limit is not None
    return (frame.orderBy(*keys) if keys else frame).limit(scan.row_limit)


def _stored(plan: Plan, types: T.StructType) -> T.StructType:
    """The columns of the plan's files for Spark's reader: those of ``types``, and all others that it can tell apart."""
    asked = {f.name: f for f in types.fields if f.name not in _SPARKS}
    lower = [f.name.lower() for f in plan.schema.fields]
    if len(set(lower)) < len(lower):
        return T.StructType(list(asked.values()))
    return T.StructType([asked.get(f.name) or _column(f) for f in plan.schema.fields if _is_native(f)])


def _column(field: DataField, required: bool = False) -> T.StructField:
    # NULL is allowed inside: PySpark could not cast a NULL struct to a type with NOT NULL fields.
    metadata: dict[str, str] = char_metadata(field.type) or {}
    if field.description is not None:
        metadata = {**metadata, "comment": field.description}
    return T.StructField(field.name, nullable(spark_type(field.type)), not required, metadata)


def _required(scan: TableScan) -> set[int]:
    """The ids of the columns that are NOT NULL, and were when each of the scan's files was written.

    A column that became NOT NULL later may still hold NULL in older files.
    """
    if type(scan) is not TableScan:
        return set()
    required = {f.id for f in scan.state.schema.fields if not f.type.nullable}
    if required and scan.state.schema.id > 0:
        for written in scan.plan().schemas.values():
            required &= {f.id for f in written.fields if not f.type.nullable}
    return required


def frame_schema(scan: TableScan) -> T.StructType:
    """The Spark schema of a scan's result, in the order of its columns."""
    fields = scan.state.schema
    extra = {
        FILE_PATH: T.StringType(),
        ROW_INDEX: T.LongType(),
        BUCKET: T.IntegerType(),
        PARTITION: spark_schema(fields.partition_fields),
    }
    required = _required(scan)
    out = []
    for name in scan.columns:
        if name in extra:
            out.append(T.StructField(name, extra[name], False))
        else:
            field = fields.field(name)
            out.append(_column(field, field.id in required))
    return T.StructType(out)


def changes_frame(spark: SparkSession, scan: ChangeScan, types: T.StructType, here: bool) -> DataFrame:
    """The scan's rows; read now if ``here``."""
    if here:
        return local_frame(spark, scan.to_arrow(), types)
    spec, store = scan.spec(), scan.store
    reads = scan.tasks()

    def rows_of(_: int, task: ChangeTask) -> Iterator[pa.Table]:
        return read_changes(store, task, spec)

    frame = read_packed(spark, reads, [t.size for t in reads], types, rows_of)
    return frame if scan.row_limit is None else frame.limit(scan.row_limit)


KEY = "__bitlake_file"
"""The column of a file's path as the plan has it."""

_MODIFIED = "file_modification_time"
_TYPES: dict[str, tuple[pa.DataType, T.DataType]] = {
    "file_path": (pa.string(), T.StringType()),
    "file_name": (pa.string(), T.StringType()),
    "file_size": (pa.int64(), T.LongType()),
    "file_block_start": (pa.int64(), T.LongType()),
    "file_block_length": (pa.int64(), T.LongType()),
    _MODIFIED: (pa.timestamp("us", "UTC"), T.TimestampType()),
}


def file_rows(store: Store, files: Sequence[PlannedFile], members: Sequence[str]) -> tuple[pa.Table, T.StructType]:
    """A row for each file: :data:`KEY` and these members of ``_metadata``, without ``row_index``.

    A file is one block, for it is read by one task.  The time of modification takes a listing of each folder.
    """
    members = [m for m in members if m in _TYPES]
    times: dict[str, dict[str, int]] = {}
    if _MODIFIED in members:
        for folder in {f.path.rpartition("/")[0] for f in files}:
            times[folder] = {info.name: info.mtime_ms for info in store.list(folder)}
    columns: dict[str, pa.Array] = {KEY: pa.array([f.path for f in files], pa.string())}
    for member in members:
        values: list[object]
        if member == "file_path":
            values = [file_uri(f.path) for f in files]
        elif member == "file_name":
            values = [f.path.rpartition("/")[2] for f in files]
        elif member == "file_block_start":
            values = [0] * len(files)
        elif member == _MODIFIED:
            values = [times[folder][name] * 1000 for folder, _, name in (f.path.rpartition("/") for f in files)]
        else:
            values = [f.entry.file.file_size for f in files]
        columns[member] = pa.array(values, _TYPES[member][0])
    types = [T.StructField(KEY, T.StringType(), False)]
    types += [T.StructField(m, _TYPES[m][1], False) for m in members]
    return pa.table(columns), T.StructType(types)


def with_not_null(spark: SparkSession, frame: DataFrame, stored: Sequence[str], names: Collection[str]) -> DataFrame:
    """A frame of :meth:`DataFrameReader.parquet`, of the columns ``stored``, in which those of ``names`` are NOT NULL.

    Spark makes every column of a file relation nullable, and an expression over it that is not would keep filters from
    its reader.  So the relation itself gets another output.  On Spark Connect, which cannot, all stay nullable.
    """
    session: Any = getattr(spark, "_jsparkSession", None)
    jvm: Any = getattr(spark, "_jvm", None)
    if session is None or jvm is None or not names:
        return frame
    relation = frame._jdf.queryExecution().analyzed()
    if relation.nodeName() == "Project":  # Spark pads CHAR above the relation
        return frame
    output = relation.output()
    columns = []
    for at, name in enumerate(stored):
        column = output.apply(at)
        columns.append(column.withNullability(False) if name in names else column)
    size = relation.productArity()
    gateway: Any = spark.sparkContext._gateway
    parts = gateway.new_array(jvm.java.lang.Object, size)
    for n in range(size):
        part = relation.productElement(n)
        parts[n] = jvm.PythonUtils.toSeq(columns) if n == 1 else part  # LogicalRelation(relation, output, …)
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, relation.makeCopy(parts))
    return DataFrame(made, spark)
