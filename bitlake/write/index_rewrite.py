"""Backfill of file indexes: give data files already written the indexes that the table's options ask for now.

Per file: payloads that are still wanted are kept as they are, missing ones are built from the indexed columns alone,
what the options no longer name is dropped.  Columns are found by field id, so that a column dropped and added again
under its old name is not indexed with the old column's values.  COMPACT snapshots swap the files' entries (DELETE, then
ADD), a batch of files each (:mod:`bitlake.write.index_rewrite`).
A new index gets a new name, ``X.parquet-<8 hex digits of this rewrite>.index``: older snapshots still read the old one,
and another rewrite may be under way, whose files neither is overwritten here nor deleted when this one loses.  (Paimon
counts, ``X.parquet-1.index``, and two of its rewrites share names; any name that ends in ``.index`` is read.)
A file whose index already satisfies the options is left alone, so running it twice does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller

from bitlake import _clock
from bitlake.deletion import discard_files
from bitlake.errors import CommitConflict, CorruptError, NotFound, UnsupportedFeature, reading_table
from bitlake.expressions.tree import IsNull
from bitlake.fileindex.container import encode_container, read_header
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import INDEX_TYPES, IndexBuilder, IndexSpec, parse_index_options
from bitlake.io import Store
from bitlake.metadata.manifest import EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items, say
from bitlake.runtime import Runner
from bitlake.scan.index_reader import INDEX_SUFFIX, index_name
from bitlake.schema.evolution import map_fields
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.types import DataField, DataType, MapType
from bitlake.write.commit import CommitPlan, commit
from bitlake.write.data_file_writer import FileMaker, indexed_columns, source_column, source_columns
from bitlake.write.rolling_files import place_index

log = logging.getLogger("bitlake")

_MARK = 8
"""Hex digits that tell the indexes of one rewrite from those of any other."""


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
    problems: tuple[str, ...] = ()


def plan_rewrite(state: TableState, entries: Sequence[ManifestEntry]) -> list[RewriteTask]:
    """The tasks for these files; the indexes wanted are said in each file's own column names."""
    schema = state.schema
    wanted = parse_index_options(schema.options, schema.fields)
    schemas = state.schemas({e.file.schema_id for e in entries})
    partitions = PartitionReader(schema, state.paths)
    by_schema: dict[int, tuple[IndexSpec, ...]] = {}
    tasks = []
    rewrite = _clock.new_uuid()[:_MARK]
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
        # A file written before a column changed its type may hold values that the index does not take.
        if source is not None and _indexable(source.type, spec, key):
            out.append(replace(spec, column=source.name if key is None else f"{source.name}[{key}]"))
    return tuple(out)


def _indexable(made: DataType, spec: IndexSpec, key: str | None) -> bool:
    if key is not None:
        return isinstance(made, MapType) and INDEX_TYPES[spec.index_type].supports(made.value)
    return INDEX_TYPES[spec.index_type].supports(made)


def rewrite_file(store: Store, maker: FileMaker, task: RewriteTask) -> Rewritten:
    """Bring one file's index in line; runs in this process or on an executor.  Nothing is visible before the commit."""
    found = _existing(store, task)
    wanted = {(s.column, s.index_type) for s in task.specs}
    kept = {} if found is None else {key: payload for key, payload in found.items() if key in wanted}
    try:
        built, problems = _build(store, task, [s for s in task.specs if (s.column, s.index_type) not in kept])
    except CorruptError as e:
        raise e if e.path else e.within(task.path) from e
    if found is not None and not built and len(kept) == len(found):
        return Rewritten(task.entry, None, problems=problems)
    merged: dict[str, dict[str, bytes | None]] = {}
    for column, kind in [k for k in ((s.column, s.index_type) for s in task.specs) if k in kept or k in built]:
        merged.setdefault(column, {})[kind] = kept[column, kind] if (column, kind) in kept else built[column, kind]
    # What a snapshot deleted must never be added again: an entry is known by its embedded index too, and one that is
    # back at what it was before (no index, or the same bytes) would read as deleted.  So each rewrite leaves its mark.
    mark = task.new_name.removesuffix(INDEX_SUFFIX)[-_MARK:].encode()
    content = encode_container(merged, mark=mark, checksums=True)
    file = task.entry.file
    others = tuple(n for n in file.extra_files if not n.endswith(INDEX_SUFFIX))
    extra, embedded = place_index(store, maker.schema, task.path, task.new_name, content)
    new = replace(task.entry, file=replace(file, extra_files=others + extra, embedded_index=embedded))
    names = tuple(f"{kind}({column})" for column, kind in built)
    return Rewritten(replace(task.entry, kind=EntryKind.DELETE), new, names, len(content), problems)


def rewrite_all(state: TableState, entries: Sequence[ManifestEntry], store: Store, runner: Runner) -> list[Rewritten]:
    """Run :func:`rewrite_file` over the files; on an error, the new index files made so far are deleted."""
    tasks = plan_rewrite(state, entries)
    maker = FileMaker.of(state.paths, state.schema, store)
    of_items("files", size=lambda t: t.entry.file.file_size)
    try:
        done = runner.run(tasks, partial(rewrite_file, store, maker))
    except BaseException:
        discard_files(store, [t.new_path for t in tasks])
        raise
    for problem in (p for d in done for p in d.problems):
        log.warning("%s", problem)
    return done


def _existing(store: Store, task: RewriteTask) -> dict[tuple[str, str], bytes | None] | None:
    """The payloads that a file's index holds now (none without an index), or None if any of it cannot be read: then it
    is replaced whole."""
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
        for column, kinds in header.columns.items()
        for kind, (start, length) in kinds.items()
    }


def _check_payloads(content: bytes, task: RewriteTask) -> None:
    """Raise for a payload whose head is not what it should be; those no longer wanted do not matter."""
    rows = task.entry.file.row_count
    index = open_index(lambda at, n: content[at : at + n], len(content), task.file_schema.fields, rows, strict=True)
    for spec in task.specs:
        # A question that every kind of index answers, or not, from its head.
        index.ask(spec.column, spec.index_type, methodcaller("test", IsNull(spec.column)))


def _build(
    store: Store, task: RewriteTask, specs: Sequence[IndexSpec]
) -> tuple[dict[tuple[str, str], bytes], tuple[str, ...]]:
    """The payloads of these indexes, from the file's indexed columns alone, and why some were not made."""
    if not specs:
        return {}, ()
    fields = task.file_schema.fields
    builder = IndexBuilder(list(specs), fields)
    columns = source_columns(specs, fields)
    for batch in indexed_columns(store, task.path, columns, fields):
        builder.add(batch)
    payloads = {(column, kind): p for column, kinds in builder.payloads().items() for kind, p in kinds.items()}
    return payloads, tuple(f"{task.path}: {problem}" for problem in builder.problems)


# --- backfill ---
# Index backfill of a whole table: batches of files, each rewritten somewhere and made visible by its own commit.
#
# A batch that loses a file to another writer (a compaction, an overwrite, another backfill) starts again with what is
# left of it; what was committed before stays.  A killed backfill loses one batch, and the next call skips what is done.

BATCH_FILES = 256
"""Files a commit: at 0.1 to 2 s a file, minutes of work on a small cluster, and few snapshots on a large table."""
_TRIES = 10


def backfill(
    state: TableState,
    entries: Sequence[ManifestEntry],
    now: Callable[[], TableState],
    runner: Runner,
    user: str,
    batch_files: int = BATCH_FILES,
) -> list[Rewritten]:
    """Bring the indexes of these files in line with the table's options; ``now`` loads the table anew.

    Raises :class:`CommitConflict` when other writers keep taking a batch's files away.
    """
    done: list[Rewritten] = []
    for start in range(0, len(entries), batch_files):
        if len(entries) > batch_files:
            say(f"batch {start // batch_files + 1:,} of {-(-len(entries) // batch_files):,}")
        done += _batch(state, entries[start : start + batch_files], now, runner, user)
    return done


def _batch(
    state: TableState, entries: Sequence[ManifestEntry], now: Callable[[], TableState], runner: Runner, user: str
) -> list[Rewritten]:
    for left in range(_TRIES, 0, -1):
        with reading_table(state.name):
            done = rewrite_all(state, entries, state.store, runner)
        try:
            _commit(state, [d for d in done if d.new is not None], user)
            return done
        except CommitConflict:
            if left == 1:
                raise
        state = now()
        names = {e.file.file_name for e in entries}
        entries = [e for e in state.entries() if e.file.file_name in names]
    raise AssertionError("the last try returns or raises")


def _commit(state: TableState, changed: Sequence[Rewritten], user: str) -> None:
    if not changed:
        return
    adds = tuple(d.new for d in changed if d.new is not None)
    plan = CommitPlan(kind="COMPACT", adds=adds, deletes=tuple(d.old for d in changed))
    commit(state.store, state.paths, plan, state.schema, user, on_failure=lambda: _discard(state, changed))


def _discard(state: TableState, changed: Sequence[Rewritten]) -> None:
    partitions = PartitionReader(state.schema, state.paths)
    for d in changed:
        assert d.new is not None
        folder = partitions.data_path(d.new).rsplit("/", 1)[0]
        new = [n for n in d.new.file.extra_files if n not in d.old.file.extra_files]
        discard_files(state.store, [f"{folder}/{n}" for n in new])
