"""Backfill of file indexes: give data files already written the indexes that the table's options ask for now.

Per file: payloads that are still wanted are kept as they are, missing ones are built from the indexed columns alone,
what the options no longer name is dropped.  Columns are found by field id, so that a column dropped and added again
under its old name is not indexed with the old column's values.  One COMPACT snapshot swaps all files' entries (DELETE, ADD).
A new index gets a new name, ``X.parquet-<8 hex digits of this rewrite>.index``: older snapshots still read the old one,
and another rewrite may be under way, whose files neither is overwritten here nor deleted when this one loses.  (Paimon
counts, ``X.parquet-1.index``, and two of its rewrites share names; any name that ends in ``.index`` is read.)
A file whose index already satisfies the options is left alone, so running it twice does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bitlake import _clock
from bitlake.errors import CorruptError, NotFound
from bitlake.fileindex.build import IndexBuilder
from bitlake.fileindex.container import encode_container, read_header
from bitlake.fileindex.registry import IndexSpec, parse_index_options
from bitlake.formats.parquet_scan import read_columns
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.storage import Store
from bitlake.table.data_file import FileMaker, discard_files, source_column, source_columns, text_columns
from bitlake.table.evolution import map_fields
from bitlake.table.index_access import INDEX_SUFFIX, index_name
from bitlake.table.partitions import PartitionReader
from bitlake.table.runner import Runner
from bitlake.table.state import TableState
from bitlake.types import DataField

_BATCH_ROWS = 128 * 1024


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One data file whose index is to be brought in line with the options; picklable."""

    entry: ManifestEntry
    path: str
    file_schema: TableSchema
    specs: tuple[IndexSpec, ...]
    new_name: str

    @property
    def new_path(self) -> str:
        """Where the new index goes if it is not embedded."""
        return f"{self.path.rsplit('/', 1)[0]}/{self.new_name}"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became of one file: its new entry, or None when its index was right already."""

    old: ManifestEntry
    new: ManifestEntry | None
    built: tuple[str, ...] = ()
    index_bytes: int = 0


def plan_rewrite(state: TableState, entries: Sequence[ManifestEntry]) -> list[RewriteTask]:
    """The tasks for these files; the indexes wanted are said in each file's own column names."""
    schema = state.schema
    wanted = parse_index_options(schema.options, schema.fields)
    schemas = state.schemas({e.file.schema_id for e in entries})
    partitions = PartitionReader(schema, state.paths)
    by_schema: dict[int, tuple[IndexSpec, ...]] = {}
    tasks = []
    rewrite = _clock.new_uuid()[:8]
    for entry in entries:
        file_schema = schemas[entry.file.schema_id]
        specs = by_schema.get(file_schema.id)
        if specs is None:
            specs = by_schema[file_schema.id] = _in_file_names(wanted, schema, file_schema)
        name = f"{entry.file.file_name}-{rewrite}{INDEX_SUFFIX}"
        tasks.append(RewriteTask(entry, partitions.data_path(entry), file_schema, specs, name))
    return tasks


def _in_file_names(wanted: Sequence[IndexSpec], schema: TableSchema, file_schema: TableSchema) -> tuple[IndexSpec, ...]:
    mapping = map_fields(schema.fields, file_schema.fields).fields
    out = []
    for spec in wanted:
        top, key = source_column(spec, schema.fields)
        source: DataField | None = mapping[top]
        if source is not None:
            out.append(replace(spec, column=source.name if key is None else f"{source.name}[{key}]"))
    return tuple(out)


def rewrite_file(store: Store, schema: TableSchema, maker: FileMaker, task: RewriteTask) -> Rewritten:
    """Bring one file's index in line; runs in this process or on an executor.  Nothing is visible before the commit."""
    kept, unreadable = _kept_payloads(store, task)
    missing = [s for s in task.specs if s.index_type not in kept.get(s.column, {})]
    have = _present(store, task)
    surplus = {(c, t) for c, inner in have.items() for t in inner} - {(s.column, s.index_type) for s in task.specs}
    if not missing and not surplus and not unreadable:
        return Rewritten(task.entry, None)
    built = _build(store, task, missing)
    merged: dict[str, dict[str, bytes | None]] = {}
    for spec in task.specs:
        payload = kept.get(spec.column, {}).get(spec.index_type) or built.get(spec.column, {}).get(spec.index_type)
        merged.setdefault(spec.column, {})[spec.index_type] = payload
    content = encode_container(merged, [(s.column, s.index_type) for s in task.specs]) if merged else b""
    file = task.entry.file
    others = tuple(n for n in file.extra_files if not n.endswith(INDEX_SUFFIX))
    extra, embedded = maker.place_index(task.path, task.new_name, content)
    new = replace(task.entry, file=replace(file, extra_files=others + extra, embedded_index=embedded))
    names = tuple(f"{s.index_type}({s.column})" for s in missing)
    return Rewritten(replace(task.entry, kind=EntryKind.DELETE), new, names, len(content))


def rewrite_all(state: TableState, entries: Sequence[ManifestEntry], store: Store, runner: Runner) -> list[Rewritten]:
    """Run :func:`rewrite_file` over the files; on an error, the new index files made so far are deleted."""
    tasks = plan_rewrite(state, entries)
    maker = FileMaker.of(state.paths, state.schema, store)
    try:
        return runner.run(tasks, partial(rewrite_file, store, state.schema, maker))
    except BaseException:
        discard_files(store, [t.new_path for t in tasks])
        raise


def _container(store: Store, task: RewriteTask) -> bytes | None:
    file = task.entry.file
    if file.embedded_index is not None:
        return file.embedded_index
    name = index_name(file)
    return None if name is None else store.read(f"{task.path.rsplit('/', 1)[0]}/{name}")


def _present(store: Store, task: RewriteTask) -> Mapping[str, Mapping[str, tuple[int, int]]]:
    try:
        content = _container(store, task)
        return {} if content is None else read_header(content).columns
    except (CorruptError, NotFound):
        return {}


def _kept_payloads(store: Store, task: RewriteTask) -> tuple[dict[str, dict[str, bytes]], bool]:
    """Payloads that the options still name, and whether an index is there that cannot be read (it is replaced)."""
    try:
        content = _container(store, task)
        if content is None:
            return {}, False
        header = read_header(content)
    except (CorruptError, NotFound):
        return {}, True
    kept: dict[str, dict[str, bytes]] = {}
    for spec in task.specs:
        where = header.columns.get(spec.column, {}).get(spec.index_type)
        if where is not None and where[0] >= 0:
            kept.setdefault(spec.column, {})[spec.index_type] = content[where[0] : where[0] + where[1]]
    return kept, False


def _build(store: Store, task: RewriteTask, specs: Sequence[IndexSpec]) -> dict[str, dict[str, bytes]]:
    if not specs:
        return {}
    builder = IndexBuilder(list(specs), task.file_schema.fields)
    columns = source_columns(specs, task.file_schema.fields)
    with store.open_input(task.path) as source:
        for batch in read_columns(
            source, columns, batch_size=_BATCH_ROWS, read_dictionary=text_columns(columns, task.file_schema.fields)
        ):
            builder.add(batch)
    return builder.payloads()
