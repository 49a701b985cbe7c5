"""Backfill of file indexes: builds the indexes that the table's options declare for data files that lack them.

For each file, payloads that the options still name are kept as they are, missing ones are built from the indexed
columns alone, and others are dropped.  Columns are found by field id, so that a column dropped and added again under
its old name is not indexed with the old column's values.  A file whose index already matches the options is not
touched, so running a backfill twice does nothing.

A new index gets a new name, ``X.parquet-<8 hex digits of this rewrite>.index``: older snapshots still read the old one,
and another rewrite may be running, whose files must be neither overwritten here nor deleted when this one loses.
(Paimon counts, ``X.parquet-1.index``, and two of its rewrites share names; every name that ends in ``.index`` is read.)

:func:`backfill` rewrites batches of files through the runner; a COMPACT snapshot for each batch replaces the files'
entries (DELETE, then ADD).  A batch that loses a file to another writer (a compaction, an overwrite, another backfill)
starts again with the remaining files; earlier batches stay committed.  A killed backfill loses one batch, and the next
call skips the files that are done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bitlake import _clock
from bitlake.errors import CommitConflict, CorruptError, NotFound, UnsupportedFeature, reading_table
from bitlake.fileindex.container import encode_container, read_header
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import (
    IndexBuilder,
    IndexSpec,
    UnwrittenIndex,
    by_column,
    by_entry,
    known_index_type,
    usable_indexes,
)
from bitlake.fileindex.source import index_source
from bitlake.io import Store
from bitlake.metadata.manifest import INDEX_SUFFIX, EntryKind, ManifestEntry, index_name
from bitlake.metadata.schema import TableSchema
from bitlake.progress import count_rows, of_items, say
from bitlake.runtime import Runner
from bitlake.schema.evolution import map_fields, map_indexed
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.snapshot.table_files import discard_files
from bitlake.write.commit import COMPACT_TRIES, commit
from bitlake.write.commit_plan import CommitPlan
from bitlake.write.data_file_writer import DataFileFactory, indexed_columns, source_columns, store_index

log = logging.getLogger("bitlake")

_MARK = 8
"""Hex digits that distinguish the indexes of one rewrite from those of any other."""
BATCH_FILES = 256
"""Files of a commit: at 0.1 to 2 s a file, minutes of work on a small cluster, and few snapshots on a large table."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One data file whose index is to match ``specs``, in the file's own column names; picklable."""

    entry: ManifestEntry
    path: str
    file_schema: TableSchema
    specs: tuple[IndexSpec, ...]
    new_name: str

    @property
    def new_path(self) -> str:
        """The path of the new index if it is not embedded."""
        return f"{self.path.rsplit('/', 1)[0]}/{self.new_name}"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of one file: its new entry, or None if its index matched the options already.

    ``built`` names the indexes built, ``index_bytes`` is the size of the container, ``problems`` says which indexes
    could not be built and why.

    >>> schema = table.indexes.create("amount", "range-bitmap")
    >>> rewritten = table.indexes.rebuild()[0]
    >>> rewritten.built, rewritten.index_bytes > 0, rewritten.problems
    (('range-bitmap(amount)',), True, ())
    """

    old: ManifestEntry
    new: ManifestEntry | None
    built: tuple[str, ...] = ()
    index_bytes: int = 0
    problems: tuple[UnwrittenIndex, ...] = ()

    def __repr__(self) -> str:
        outcome = "unchanged" if self.new is None else ", ".join(self.built) or "index dropped"
        return f"Rewritten({self.old.file.file_name}: {outcome})"


def plan_rewrite(state: TableState, entries: Sequence[ManifestEntry]) -> list[RewriteTask]:
    """Return the tasks for data files, with the indexes that the table's options declare."""
    schema = state.schema
    declared = usable_indexes(schema.options, schema.fields)
    schemas = state.schemas({e.file.schema_id for e in entries})
    partitions = PartitionReader(schema, state.paths)
    by_schema: dict[int, tuple[IndexSpec, ...]] = {}
    tasks = []
    rewrite = _clock.new_uuid()[:_MARK]
    for entry in entries:
        file_schema = schemas[entry.file.schema_id]
        specs = by_schema.get(file_schema.id)
        if specs is None:
            specs = by_schema[file_schema.id] = _specs_for_file(declared, schema, file_schema)
        name = f"{entry.file.file_name}-{rewrite}{INDEX_SUFFIX}"
        tasks.append(RewriteTask(entry, partitions.data_path(entry), file_schema, specs, name))
    return tasks


def _specs_for_file(
    declared: Sequence[IndexSpec], schema: TableSchema, file_schema: TableSchema
) -> tuple[IndexSpec, ...]:
    mapping = map_fields(schema.fields, file_schema.fields)
    out = []
    for spec in declared:
        # A file written before a column changed its type may hold values that the index does not support.
        column = map_indexed(spec.column, schema.fields, mapping)
        source = None if column is None else index_source(column, file_schema.fields)
        if source is not None and known_index_type(spec.index_type).supports(source.type):
            out.append(replace(spec, column=source.name))
    return tuple(out)


def rewrite_file(store: Store, factory: DataFileFactory, task: RewriteTask) -> Rewritten:
    """Write the index of one file, in this process or on an executor; nothing is visible before the commit.

    Raises :class:`CorruptError`, naming the file, if its columns cannot be read.
    """
    current = _current_payloads(store, task)
    declared = {(s.column, s.index_type) for s in task.specs}
    kept = {} if current is None else {key: payload for key, payload in current.items() if key in declared}
    try:
        built, problems = _build_payloads(store, task, [s for s in task.specs if (s.column, s.index_type) not in kept])
    except CorruptError as e:
        raise e if e.path else e.within(task.path) from e
    if current is not None and not built and len(kept) == len(current):
        return Rewritten(task.entry, None, problems=problems)
    merged: dict[str, dict[str, bytes | None]] = {}
    for column, kind in [k for k in ((s.column, s.index_type) for s in task.specs) if k in kept or k in built]:
        merged.setdefault(column, {})[kind] = kept[column, kind] if (column, kind) in kept else built[column, kind]
    # An entry that a snapshot deleted must never be added again.  An entry's identity includes its embedded index: one
    # with its former content (no index, or the same bytes) would read as deleted.  So each rewrite leaves a mark.
    mark = task.new_name.removesuffix(INDEX_SUFFIX)[-_MARK:].encode()
    content = encode_container(by_entry(merged), mark=mark, checksums=True)
    file = task.entry.file
    others = tuple(n for n in file.extra_files if not n.endswith(INDEX_SUFFIX))
    extra, embedded = store_index(store, factory.schema, task.path, task.new_name, content)
    new = replace(task.entry, file=replace(file, extra_files=others + extra, embedded_index=embedded))
    names = tuple(f"{kind}({column})" for column, kind in built)
    return Rewritten(replace(task.entry, kind=EntryKind.DELETE), new, names, len(content), problems)


def rewrite_all(state: TableState, entries: Sequence[ManifestEntry], store: Store, runner: Runner) -> list[Rewritten]:
    """Run :func:`rewrite_file` over the files; on an error the new index files are deleted."""
    tasks = plan_rewrite(state, entries)
    factory = DataFileFactory(state.paths, state.schema, store)
    of_items("files", size=lambda t: t.entry.file.file_size)
    try:
        results = runner.run(tasks, partial(rewrite_file, store, factory))
    except BaseException:
        discard_files(store, [t.new_path for t in tasks])
        raise
    for problem in dict.fromkeys(p for r in results for p in r.problems):  # one of each index
        log.warning("%s", problem)
    return results


def _current_payloads(store: Store, task: RewriteTask) -> dict[tuple[str, str], bytes | None] | None:
    """The payloads of a file's current index; empty without an index, None if it cannot be read and must be rebuilt."""
    file = task.entry.file
    try:
        name = index_name(file)
        if file.embedded_index is None and name is None:
            return {}
        content = file.embedded_index or store.read(f"{task.path.rsplit('/', 1)[0]}/{name}")
        header = read_header(content)
        _check_payloads(content, task)
    except (CorruptError, NotFound, UnsupportedFeature):
        return None
    return {
        (column, kind): None if start < 0 else content[start : start + length]
        for column, kinds in by_column(header.columns).items()
        for kind, (start, length) in kinds.items()
    }


def _check_payloads(content: bytes, task: RewriteTask) -> None:
    """Raise for a payload with a damaged header; payloads of indexes that are no longer declared are not checked."""
    rows = task.entry.file.row_count
    index = open_index(lambda at, n: content[at : at + n], len(content), task.file_schema.fields, rows, strict=True)
    for spec in task.specs:
        index.check(spec.column, spec.index_type)


def _build_payloads(
    store: Store, task: RewriteTask, specs: Sequence[IndexSpec]
) -> tuple[dict[tuple[str, str], bytes], tuple[UnwrittenIndex, ...]]:
    """The payloads of these indexes, built from the indexed columns alone, and why some could not be built."""
    if not specs:
        return {}, ()
    fields = task.file_schema.fields
    builder = IndexBuilder(list(specs), fields)
    columns = source_columns(specs, fields)
    for batch in indexed_columns(store, task.path, columns, fields):
        builder.add(batch)
        count_rows(written=batch.num_rows)
    payloads = {(column, kind): p for column, kinds in builder.payloads().items() for kind, p in kinds.items()}
    return payloads, tuple(builder.problems_of(task.path))


def backfill(
    state: TableState,
    entries: Sequence[ManifestEntry],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
    batch_files: int = BATCH_FILES,
) -> list[Rewritten]:
    """Make the indexes of data files match the table's options; returns a result for each file.

    ``now`` loads the latest state, ``user`` is the commit user, ``batch_files`` the number of files of a commit.
    Raises :class:`CommitConflict` when other writers keep replacing a batch's files.
    """
    results: list[Rewritten] = []
    for start in range(0, len(entries), batch_files):
        if len(entries) > batch_files:
            say(f"batch {start // batch_files + 1:,} of {-(-len(entries) // batch_files):,}")
        results += _rewrite_batch(state, entries[start : start + batch_files], now, runner, user)
    return results


def _rewrite_batch(
    state: TableState, entries: Sequence[ManifestEntry], now: Callable[[], TableState], runner: Runner, user: str
) -> list[Rewritten]:
    for tries_left in reversed(range(COMPACT_TRIES)):
        with reading_table(state.name):
            results = rewrite_all(state, entries, state.store, runner)
        try:
            _commit_batch(state, [r for r in results if r.new is not None], user)
            return results
        except CommitConflict:
            if not tries_left:
                raise
        state = now()
        names = {e.file.file_name for e in entries}
        entries = [e for e in state.entries() if e.file.file_name in names]
    raise AssertionError("the last try returns or raises")


def _commit_batch(state: TableState, changed: Sequence[Rewritten], user: str) -> None:
    if not changed:
        return
    adds = tuple(r.new for r in changed if r.new is not None)
    plan = CommitPlan(kind="COMPACT", adds=adds, deletes=tuple(r.old for r in changed))
    commit(state.store, state.paths, plan, state.schema, user, on_failure=lambda: _discard_indexes(state, changed))


def _discard_indexes(state: TableState, changed: Sequence[Rewritten]) -> None:
    partitions = PartitionReader(state.schema, state.paths)
    for result in changed:
        assert result.new is not None
        folder = partitions.data_path(result.new).rsplit("/", 1)[0]
        new = [n for n in result.new.file.extra_files if n not in result.old.file.extra_files]
        discard_files(state.store, [f"{folder}/{n}" for n in new])
