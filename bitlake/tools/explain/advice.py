"""Which index would have helped a scan: from its conditions, and if it was read, from what came of it.

What each condition of a scan was worth to it: how many rows the indexes of its column left, file by file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.errors import BitlakeError
from bitlake.expressions.sql_text import name, quote, to_sql
from bitlake.expressions.tree import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Leaf,
    Like,
    MapKey,
    Op,
    Or,
    Predicate,
    columns_of,
    conjuncts,
)
from bitlake.fileindex.capabilities import IndexType
from bitlake.fileindex.reader import FileIndexReader
from bitlake.fileindex.registry import PREFIX, find_index_type, index_types
from bitlake.fileindex.selection import Selection
from bitlake.formatting import human_bytes
from bitlake.io import Store
from bitlake.metadata.manifest import ManifestEntry, has_index
from bitlake.metadata.schema import TableSchema
from bitlake.scan.index_reader import open_file_index
from bitlake.scan.plan import Plan, StepName
from bitlake.schema.evolution import map_fields, map_predicate
from bitlake.tools.explain.pages import FileMap

MOST_FILES = 400
"""Files whose indexes are asked again, condition by condition."""


@dataclass(frozen=True, slots=True)
class LeafStep:
    """What one condition did, over the files that were looked at.

    ``condition``: a top-level AND term as SQL.  ``indexes``: which were asked about it, as ``bitmap(status)``.
    ``rows_before`` and ``rows_after``: rows that could match before its indexes were asked, and after.  ``files``:
    whose rows those are; ``files_without``: those of them without an index of its columns; ``files_emptied``: in which
    no row was left.  ``not_asked``: why existing indexes were not used, with the number of files.
    """

    condition: str
    columns: tuple[str, ...]
    indexes: tuple[str, ...] = ()
    files: int = 0
    files_without: int = 0
    files_emptied: int = 0
    rows_before: int = 0
    rows_after: int = 0
    not_asked: tuple[tuple[str, int], ...] = ()


def asked_of(step: LeafStep) -> str:
    """Which indexes were asked about a condition, in words."""
    if not step.files:
        return "no file: merged by key"
    if step.indexes:
        return ", ".join(step.indexes)
    return "no index" if step.files_without == step.files else "no index that can answer it"


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file whose indexes a plan asked about a predicate, and the indexes that it did not read."""

    entry: ManifestEntry
    path: str
    predicate: Predicate
    unused_indexes: tuple[str, ...] = ()


def leaf_steps(plan: Plan, store: Store, use_index: bool) -> tuple[list[LeafStep], int]:
    """Ask the indexes again, one condition after the other; returns the steps and how many files were left out.

    What the plan opened is still cached, so that little is read.
    """
    if plan.predicate is None or not use_index:
        return [], 0
    files = _indexed_files(plan)
    # What speaks of partitions alone was decided by them: whole files have one value.
    keys = frozenset(plan.schema.partition_keys)
    terms = [t for t in conjuncts(plan.predicate) if not isinstance(t, Constant) and not columns_of(t) <= keys]
    steps = [LeafStep(to_sql(t, plan.schema.fields), tuple(sorted(columns_of(t)))) for t in terms]
    for file in files[:MOST_FILES]:
        steps = _file(steps, terms, file, plan, store)
    return steps, max(0, len(files) - MOST_FILES)


def _indexed_files(plan: Plan) -> list[IndexedFile]:
    out = []
    assert plan.predicate is not None
    for file in plan.files:
        if file.merge is not None:
            found = file.merge.files if file.merge.predicate is not None else ()
            out += [IndexedFile(f.entry, f.path, file.merge.predicate or And(()), f.unused_indexes) for f in found]
        else:
            out.append(IndexedFile(file.entry, file.path, plan.predicate, file.unused_indexes))
    for step in plan.steps:
        if step.name is StepName.INDEXES:
            out += [IndexedFile(f.entry, f.path, plan.predicate) for f in step.skipped]
    return out


def _file(
    steps: list[LeafStep], terms: Sequence[Predicate], file: IndexedFile, plan: Plan, store: Store
) -> list[LeafStep]:
    schema = plan.schemas.get(file.entry.file.schema_id, plan.schema)
    index = _open(file, schema, store)
    held: Mapping[str, Mapping[str, object]] = {} if index is None else index.columns
    found, rows = Selection.all(), file.entry.file.row_count
    mapping = map_fields(plan.schema.fields, schema.fields)
    wanted = conjuncts(file.predicate)
    out = []
    for step, term in zip(steps, terms, strict=True):
        if term not in wanted:  # of files that are merged, only conditions on the key count
            out.append(step)
            continue
        mapped = map_predicate(term, plan.schema.fields, mapping).predicate
        columns = columns_of(mapped)
        kinds = [f"{kind}({c})" for c in sorted(columns) for kind in held.get(c, ())]
        unused = [s for s in file.unused_indexes if s.split(":", 1)[0] in kinds]
        skipped = {s.split(":", 1)[0] for s in unused}
        before, used = found.count(rows), list[str]()
        if index is not None and len(skipped) < len(kinds):
            evaluated = index.evaluate_at_cost(mapped, None)
            found = found & evaluated.selection
            used = [k for k in evaluated.used if k not in skipped]
        after = found.count(rows)
        out.append(
            replace(
                step,
                indexes=tuple(dict.fromkeys((*step.indexes, *used))),
                files=step.files + 1,
                files_without=step.files_without + (not kinds),
                files_emptied=step.files_emptied + (before > 0 and after == 0),
                rows_before=step.rows_before + before,
                rows_after=step.rows_after + after,
                not_asked=_counted(step.not_asked, unused),
            )
        )
    return out


def _open(file: IndexedFile, schema: TableSchema, store: Store) -> FileIndexReader | None:
    if not has_index(file.entry.file):
        return None
    try:
        return open_file_index(store, file.path, file.entry.file, schema)
    except BitlakeError:
        return None  # the plan's warnings say so


def _counted(known: tuple[tuple[str, int], ...], more: Sequence[str]) -> tuple[tuple[str, int], ...]:
    counts = dict(known)
    for why in more:
        counts[why] = counts.get(why, 0) + 1
    return tuple(counts.items())


# --- advice -----------------------------------------------------------------------------------------------------------

_FEW_SHARE = 0.4
"""Above this share of rows, an index on them saves nothing (:mod:`bitlake.fileindex.cost`)."""

_NARROW_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Advice:
    """An index that would have helped: for which condition, why, and the statements that make it.

    ``files`` and ``bytes``: what it would have concerned; upper bounds where the scan was not read.
    """

    column: str
    index: str
    condition: str
    why: str
    files: int
    bytes: int
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.index} on {self.column}: {self.why}"


def advice_of(plan: Plan, steps: Sequence[LeafStep], maps: Sequence[FileMap], was_read: bool) -> list[Advice]:
    """What would have helped, for each condition that neither statistics nor an index could use; most bytes first."""
    if plan.predicate is None or not maps:
        return []
    known = {s.condition: s for s in steps}
    out: list[Advice] = []
    merged = all(f.merge is not None for f in plan.files)
    terms = conjuncts(plan.predicate)
    for term in terms:
        step = known.get(to_sql(term, plan.schema.fields))
        for leaf in _leaves(term):
            column = str(leaf.column)
            if _source(leaf) in plan.schema.partition_keys or any(a.column == column for a in out):
                continue
            if merged and _source(leaf) not in plan.schema.primary_keys:
                continue  # no index is asked: which row of a key counts is known once they are merged
            if step is not None and (step.files_without == 0 or step.files == 0) and step.indexes:
                found = _beyond_files(plan, leaf, step, maps, was_read, len(terms) == 1)
            else:
                found = _missing(plan, leaf, step, maps, was_read)
            if found is not None:
                out.append(found)
    return sorted(out, key=lambda a: -a.bytes)


def _leaves(term: Predicate) -> list[Leaf]:
    match term:
        case Or(children):
            return [leaf for c in children for leaf in _leaves(c)]
        case Comparison() | In() | Like() | IsNull():
            return [term]
        case _:
            return [leaf for c in conjuncts(term) if c != term for leaf in _leaves(c)]


def _source(leaf: Leaf) -> str:
    return leaf.column.column if isinstance(leaf.column, MapKey) else leaf.column


def _missing(plan: Plan, leaf: Leaf, step: LeafStep | None, maps: Sequence[FileMap], was_read: bool) -> Advice | None:
    """A column without an index, in files that were opened."""
    empty = [m for m in maps if was_read and _returned(plan, m) == 0]
    kind = _kind(plan.schema, leaf, bool(empty) and 2 * len(empty) >= len(maps) and _equality(leaf))
    if kind is None:
        return None
    chosen = plan.metrics.rows_chosen
    if step is not None and chosen < _NARROW_SHARE * plan.metrics.rows:
        return None  # other indexes chose so few rows that this one could save little
    without = "no file has an index of it" if step is None or step.files_without == step.files else "files lack one"
    if not was_read:
        size = sum(m.column_bytes for m in maps)
        files = f"{len(maps):,} {'file' if len(maps) == 1 else 'files'}"
        why = f"{without}, and statistics left {files} to read ({human_bytes(size)} of columns)"
        return _advice(plan, leaf, kind, why, len(maps), size)
    returned, rows = sum(_returned(plan, m) for m in maps), sum(m.rows_chosen for m in maps)
    got = sum(m.bytes_read or 0 for m in maps)
    saved = sum(m.bytes_read or 0 for m in empty)
    if 2 * len(empty) >= len(maps):
        why = f"{len(empty):,} of {len(maps):,} files were read ({human_bytes(saved)}), and no row of them matched"
        return _advice(plan, leaf, kind, why, len(empty), saved)
    if rows and returned <= _FEW_SHARE * rows:
        why = f"{human_bytes(got)} were read for {returned:,} of {rows:,} rows; {without}"
        return _advice(plan, leaf, kind, why, len(maps), got)
    return None


def _beyond_files(
    plan: Plan, leaf: Leaf, step: LeafStep, maps: Sequence[FileMap], was_read: bool, alone: bool
) -> Advice | None:
    """A column with nothing but an index that skips whole files, which let files pass or does not select rows."""
    used = [find_index_type(i.split("(", 1)[0]) for i in step.indexes]
    if not was_read or not alone or any(index is None or index.selects_rows for index in used):
        return None
    index = used[0]
    assert index is not None
    title = index.name.replace("-", " ")
    if not _equality(leaf):
        kind = _kind(plan.schema, leaf, False)
        got = sum(m.bytes_read or 0 for m in maps)
        why = f"a {title} answers {index.evaluates} only; {human_bytes(got)} were read"
        return None if kind is None else _advice(plan, leaf, kind, why, len(maps), got)
    empty = [m for m in maps if _returned(plan, m) == 0]
    kind = _kind(plan.schema, leaf, False, selects_rows=True)
    if empty and kind is not None:
        saved = sum(m.bytes_read or 0 for m in empty)
        why = (
            f"its {title} let {len(empty):,} of {len(maps):,} files pass that hold no such row "
            f"({human_bytes(saved)}): a {kind} is sure" + (f", or {index.tuning}" if index.tuning else "")
        )
        return _advice(plan, leaf, kind, why, len(empty), saved)
    return None


def _returned(plan: Plan, file: FileMap) -> int:
    return plan.metrics.by_file.get(file.path, {}).get("rows_returned", 0)


def _equality(leaf: Leaf) -> bool:
    return (isinstance(leaf, Comparison) and leaf.op is Op.EQ) or (isinstance(leaf, In) and not leaf.negated)


def _kind(schema: TableSchema, leaf: Leaf, absent: bool, selects_rows: bool = False) -> str | None:
    """The index type that suits a leaf best, None if none does.

    ``absent``: files without the value were read, which the smallest index prevents; ``selects_rows``: only indexes
    that select rows.
    """
    if isinstance(leaf.column, MapKey):
        return None
    kind = schema.field(leaf.column).type

    def suitability(index: IndexType) -> int:
        usable = index.supports(kind) and (index.selects_rows or not selects_rows)
        return index.suitability(leaf, kind, absent) if usable else 0

    best = max(index_types(), key=suitability)
    return best.name if suitability(best) > 0 else None


def _advice(plan: Plan, leaf: Leaf, kind: str, why: str, files: int, size: int) -> Advice:
    key = f"{PREFIX}{kind}.columns"
    listed = [c.strip() for c in plan.schema.options.get(key, "").split(",") if c.strip()]
    column = str(leaf.column)
    columns = ",".join(listed if column in listed else [*listed, column])
    table = ".".join(name(p) for p in plan.table.split("."))
    call = f"CALL sys.rewrite_file_index({quote(plan.table)})"
    alter = f"ALTER TABLE {table} SET TBLPROPERTIES ({quote(key)} = {quote(columns)})"
    steps = (call,) if column in listed else (alter, call)
    return Advice(column, kind, to_sql(leaf, plan.schema.fields), why, files, size, steps)
