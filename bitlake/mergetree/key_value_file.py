"""Key-value files: data and changelog files of primary-key tables.  Columns: :mod:`bitlake.schema.merge_spec`.

:class:`KeyValueWriter` writes rows in key order.  Beyond an append table's, a file's manifest entry holds the smallest
and largest key (those of the first and last row), key statistics (cut at 128 units, whatever the options), the range of
sequence numbers, and the number of -U and -D rows.  Format, compression and statistics may differ by level, and for
changelogs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from bitlake import _clock
from bitlake.formats.conform import retyped
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.mergetree.bucket import MergeTreeContext
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import DataFileMeta, EntryKind, FileSource, ManifestEntry
from bitlake.metadata.option_types import StatsMode
from bitlake.metadata.paths import data_file_name, index_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import StatsPlan, build_stats
from bitlake.schema import merge_spec
from bitlake.snapshot.partitions import PartitionReader
from bitlake.types import arrow_schema
from bitlake.write.data_file_writer import FileShape, RollingWriter, store_index

_KEY_STATS = StatsMode("truncate", 128)
_NONE = StatsMode("none")


def file_shape(schema: TableSchema, level: int, source: FileSource, *, changelog: bool) -> FileShape:
    """Return the shape of new files of a level."""
    options = schema.opts
    base = FileShape.of(schema)
    file_format = options.of(opt.FORMAT_PER_LEVEL).get(level, base.file_format)
    codec = options.of(opt.COMPRESSION_PER_LEVEL).get(level, base.compression)
    if changelog:
        file_format = options.of(opt.CHANGELOG_FORMAT) or file_format
        codec = options.of(opt.CHANGELOG_COMPRESSION) or codec
    return replace(
        base,
        fields=merge_spec.file_fields(schema),
        # A changelog is read as a whole.
        indexes=() if changelog else base.indexes,
        file_format=file_format,
        compression=codec,
        most_rows=None if changelog or source is FileSource.COMPACT else base.most_rows,
    )


class KeyValueWriter(RollingWriter):
    """Writes rows of one bucket, given in key order, into files of one level.

    Rows are tables of ``_SEQUENCE_NUMBER``, ``_VALUE_KIND`` and all columns of the table.  Changelog rows need not be
    sorted by anything but their key.
    ``total_buckets`` (default: the table's option) goes into the entries; ``prefix`` begins the files' names.
    """

    def __init__(
        self,
        context: MergeTreeContext,
        store: Store,
        partition: bytes,
        bucket: int,
        level: int,
        *,
        source: FileSource = FileSource.APPEND,
        changelog: bool = False,
        total_buckets: int | None = None,
        prefix: str | None = None,
    ) -> None:
        schema = context.schema
        shape = file_shape(schema, level, source, changelog=changelog)
        super().__init__(store, shape, _names(schema, shape, changelog, prefix), context.paths.root)
        self._schema = schema
        self._partition = partition
        self._bucket = bucket
        self._level = level
        self._source = source
        self._total = schema.num_buckets if total_buckets is None else total_buckets
        self._partitions = PartitionReader(schema, context.paths)
        self._arrow = arrow_schema(shape.fields)
        self._keys = [f.name.removeprefix(merge_spec.KEY_PREFIX) for f in merge_spec.stored_keys(schema)]
        self._sources = [*self._keys, *(f.name for f in merge_spec.SYSTEM_FIELDS), *schema.field_names]
        modes = _stats_modes(schema, shape.file_format, level, changelog)
        stored, at = len(shape.fields), {f.name: i for i, f in enumerate(shape.fields)}
        # The positions of the table's columns, and of the key (in thin mode one of them).
        self._start = stored - len(schema.fields)
        self._key_at = [
            at[merge_spec.KEY_PREFIX + f.name] if self._keys else at[f.name] for f in merge_spec.key_fields(schema)
        ]
        self._plan = StatsPlan(tuple(modes[self._start :]), schema.opts.of(opt.STATS_DENSE))
        self._key_plan = StatsPlan(tuple(modes[i] for i in self._key_at), dense=False)
        self._begin()

    def _begin(self) -> None:
        self._first = self._last = b""
        self._low, self._high = 2**63 - 1, -(2**63)
        self._deletes = 0
        self._tail: pa.Table | None = None

    def _path(self, name: str) -> str:
        return self._partitions.new_file(self._partition, self._bucket, name)[0]

    def _stored(self, rows: pa.Table) -> pa.Table:
        if not self._first:
            self._first = merge_spec.encode_key(self._schema, rows)
        self._tail = rows.slice(rows.num_rows - 1)
        ends = pc.min_max(rows.column(merge_spec.SEQUENCE_NUMBER))
        self._low = min(self._low, ends["min"].as_py())
        self._high = max(self._high, ends["max"].as_py())
        kinds = rows.column(merge_spec.VALUE_KIND)
        if (pc.max(kinds).as_py() or 0) != 0:
            retracts = pc.or_(pc.equal(kinds, merge_spec.UPDATE_BEFORE), pc.equal(kinds, merge_spec.DELETE))
            self._deletes += pc.sum(retracts).as_py() or 0
        return retyped(pa.table([rows.column(n) for n in self._sources], names=self._arrow.names), self._arrow)

    def _entry(self, name: str, written: WrittenFile, index: bytes) -> ManifestEntry:
        schema = self._schema
        assert self._tail is not None
        mins, maxs, nulls = written.mins, written.maxs, written.null_counts
        start, keys = self._start, self._key_at
        value_stats, columns = build_stats(schema.fields, mins[start:], maxs[start:], nulls[start:], self._plan)
        key_stats, _ = build_stats(
            merge_spec.key_fields(schema),
            [mins[i] for i in keys],
            [maxs[i] for i in keys],
            [nulls[i] for i in keys],
            self._key_plan,
        )
        path, external = self._partitions.new_file(self._partition, self._bucket, name)
        extra, embedded = store_index(self._store, schema, path, index_file_name(name), index)
        meta = DataFileMeta(
            file_name=name,
            file_size=written.size,
            row_count=written.row_count,
            min_key=self._first,
            max_key=merge_spec.encode_key(schema, self._tail),
            key_stats=key_stats,
            value_stats=value_stats,
            min_sequence_number=self._low,
            max_sequence_number=self._high,
            schema_id=schema.id,
            level=self._level,
            extra_files=extra,
            creation_time=_clock.local_ms(),
            delete_row_count=self._deletes,
            embedded_index=embedded,
            file_source=self._source,
            value_stats_cols=columns,
            external_path=external,
        )
        self._begin()
        return ManifestEntry(EntryKind.ADD, self._partition, self._bucket, self._total, meta)


def _names(schema: TableSchema, shape: FileShape, changelog: bool, prefix: str | None) -> Iterator[str]:
    options = schema.opts
    if prefix is None:
        prefix = options.of(opt.CHANGELOG_PREFIX if changelog else opt.DATA_FILE_PREFIX)
    codec = shape.compression if options.of(opt.FILE_SUFFIX_COMPRESSION) else None
    writer = _clock.new_uuid()
    return (data_file_name(prefix, writer, n, shape.file_format, codec) for n in itertools.count())


def _stats_modes(schema: TableSchema, file_format: str, level: int, changelog: bool) -> list[StatsMode]:
    """The statistics to keep of each column of a file.

    Paimon counts columns differently for Avro, whose statistics it collects itself: there system columns count like any
    other column.
    """
    options = schema.opts
    mode = options.of(opt.STATS_PER_LEVEL).get(level, options.of(opt.STATS_MODE))
    if changelog:
        mode = options.of(opt.CHANGELOG_STATS) or mode
    keep, counted = options.of(opt.STATS_KEEP_FIRST), 0
    system = {f.name for f in merge_spec.file_fields(schema)} - set(schema.field_names)
    if options.of(opt.THIN_MODE):
        system |= set(schema.trimmed_primary_keys)
    out = []
    for field in merge_spec.file_fields(schema):
        own = f"fields.{field.name}.stats-mode" in options
        if not own and file_format != "avro" and field.name in system:
            out.append(_KEY_STATS)
            continue
        out.append(options.stats_mode(field.name) if own else mode if keep < 0 or counted < keep else _NONE)
        counted += 1
    return out
