"""Which index would have helped a scan: from its conditions, and if it was read, from what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitlake.expressions.sql_text import name, quote, to_sql
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, MapKey, Op, Or, Predicate, conjuncts
from bitlake.fileindex.capabilities import IndexType
from bitlake.fileindex.registry import PREFIX, find_index_type, index_types
from bitlake.formatting import human_bytes
from bitlake.metadata.schema import TableSchema
from bitlake.scan.plan import Plan
from bitlake.tools.explain.conditions import LeafStep
from bitlake.tools.explain.pages import FileMap

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
