"""What is asked of a table: queries that are given, recorded scans, or typical questions made from the data."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Leaf,
    Like,
    Op,
    Or,
    Predicate,
    columns_of,
    sources_of,
)
from bitlake.metadata.schema import TableSchema
from bitlake.tools.advise.profile import ColumnProfile, Value
from bitlake.tools.scan_log import ScanRecord
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import BINARIES, STRINGS

log = logging.getLogger("bitlake")

_MOST = 200
"""Different questions that are weighed; of more, those asked most often."""
_FEW = 12
_LISTS = (3, 10)
_RANGES = ((0.30, 0.31), (0.70, 0.71), (0.45, 0.55))
_RANGED = frozenset(Root) - STRINGS - BINARIES - {Root.BOOLEAN, Root.VARIANT}
_LEAST_RANGED = 24
"""Distinct values from which on ranges of a number are assumed to be asked."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query over one table: its condition (Spark SQL text, or a tree), and its columns (None: all)."""

    where: str | Predicate | None
    columns: tuple[str, ...] | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """A query whose condition is bound to the table; ``weight``: how often it is asked, beside the others."""

    predicate: Predicate
    columns: tuple[str, ...]
    weight: float
    text: str
    kind: str
    """``equality``, ``list``, ``range``, ``pattern``, ``null`` or ``several`` (columns)."""

    @property
    def picked(self) -> bool:
        """Whether it asks for values, which typical questions pick from the sample."""
        return self.kind in ("equality", "list")

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read for it, the condition's among them."""
        more = sorted(c for c in sources_of(self.predicate) if c not in self.columns)
        return (*self.columns, *more)


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions, and those that could not be understood, with the reason."""

    questions: tuple[Question, ...]
    unread: tuple[str, ...] = ()
    masked: Mapping[str, int] = frozenset()  # type: ignore[assignment]
    """How often recorded scans without values ask about a column."""
    whole: int = 0
    """Queries without a condition: no index helps them."""


def leaves_of(predicate: Predicate) -> list[Leaf]:
    """The leaves of a bound predicate."""
    match predicate:
        case And(children) | Or(children):
            return [leaf for c in children for leaf in leaves_of(c)]
        case Comparison() | In() | Like() | IsNull():
            return [predicate]
        case _:
            return []


def units_of(predicate: Predicate) -> list[Predicate]:
    """What indexes are asked at once: leaves, and leaves that must hold together of one column, as both ends of a range
    (an index that either end leaves half of the rows is read where both leave few)."""
    match predicate:
        case And(children):
            return [u for c in together(children) for u in ([c] if c not in children else units_of(c))]
        case Or(children):
            return [u for c in children for u in units_of(c)]
        case _:
            return list(leaves_of(predicate))


def together(children: Sequence[Predicate]) -> list[Predicate]:
    """What must hold together, several leaves of a column as one AND."""
    groups: dict[object, list[Predicate]] = {}
    for child in children:
        match child:
            case Comparison() | In() | Like() | IsNull():
                groups.setdefault(child.column, []).append(child)
            case _:
                groups[child] = [child]
    return [g[0] if len(g) == 1 else And(tuple(g)) for g in groups.values()]


def not_understood(text: str) -> str:
    """A note on a query that could not be read, in one line."""
    line = " ".join(text.split())
    return f"not understood, and passed over: {line if len(line) <= 160 else line[:159] + '…'}"


def given(queries: Sequence[str | Predicate | Query | ScanRecord], schema: TableSchema, timezone: str) -> Asked:
    """Convert queries to questions about a table.  Queries that cannot be parsed or bound are reported and skipped."""
    found: dict[tuple[Predicate, tuple[str, ...]], Question] = {}
    unread: list[str] = []
    masked: dict[str, int] = {}
    whole = 0
    for query in queries:
        if isinstance(query, ScanRecord):
            if query.where is None and query.terms:
                for column in {t.column for t in query.terms if t.column in schema.field_names}:
                    masked[column] = masked.get(column, 0) + 1
                continue
            query = Query(query.where, query.columns)
        if isinstance(query, str) and query.lstrip().lower().startswith(("select ", "with ", "select\n")):
            raise InvalidRequest(
                "table.indexes.advise() takes conditions such as \"status = 'NEW'\"; "
                "lake.advise(table, queries) takes whole queries"
            )
        if not isinstance(query, Query):
            query = Query(query)
        if query.where is None:
            whole += 1
            continue
        try:
            bound, columns = _bound(query, schema, timezone)
        except BitlakeError as e:
            unread.append(f"{query.where if isinstance(query.where, str) else to_sql(query.where)}: {e}")
            continue
        if isinstance(bound, Constant) or not leaves_of(bound):
            whole += 1
            continue
        question = _question(bound, columns, query.weight, schema)
        known = found.get((bound, columns))
        found[bound, columns] = question if known is None else replace(known, weight=known.weight + query.weight)
    most = sorted(found.values(), key=lambda q: -q.weight)[:_MOST]
    return Asked(tuple(most), tuple(unread), masked, whole)


def _bound(query: Query, schema: TableSchema, timezone: str) -> tuple[Predicate, tuple[str, ...]]:
    assert query.where is not None
    tree = query.where
    if isinstance(tree, str):
        from bitlake.expressions.parser import parse_predicate  # brings sqlglot, which only SQL text needs

        tree = parse_predicate(tree, timezone)
    bound = bind(tree, schema.fields, timezone)
    names = schema.field_names if query.columns is None else query.columns
    return bound, tuple(n for n in names if n in schema.field_names)


def _question(predicate: Predicate, columns: tuple[str, ...], weight: float, schema: TableSchema) -> Question:
    return Question(predicate, columns, weight, to_sql(predicate, schema.fields, 5), _kind(predicate))


def _kind(predicate: Predicate) -> str:
    leaves = leaves_of(predicate)
    if len(columns_of(predicate)) > 1:
        return "several"
    if all(isinstance(leaf, Comparison) and leaf.op is Op.EQ for leaf in leaves):
        return "equality" if len(leaves) == 1 else "list"
    if all(isinstance(leaf, IsNull) for leaf in leaves):
        return "null"
    if any(isinstance(leaf, Like) for leaf in leaves):
        return "pattern"
    return "list" if all(isinstance(leaf, In) for leaf in leaves) else "range"


def assumed(field: DataField, profile: ColumnProfile, schema: TableSchema) -> list[Question]:
    """Typical questions about a column: one value, some values, and ranges of numbers and times.

    Of a column with few values any of them is as likely to be asked for; of one with many, those are taken that a
    hash picks.  Ranges hold a hundredth and a tenth of the rows.
    """
    name, columns = field.name, schema.field_names
    assert isinstance(field.type, AtomicType)
    values = [v for v in (profile.top if profile.distinct <= len(profile.top) else profile.kept) if _askable(v)]
    found: list[Predicate] = [Comparison(name, Op.EQ, v.value) for v in _evenly(values, _FEW)]
    for length in _LISTS:
        if profile.distinct > 2 * length and len(values) >= length:
            found.append(In(name, tuple(sorted(v.value for v in values[:length]))))
    if field.type.root in _RANGED and profile.distinct >= _LEAST_RANGED and len(profile.cuts) > 2:
        cuts = profile.cuts
        for low, high in _RANGES:
            first, last = _between(cuts, low), _between(cuts, high)
            found.append(And((Comparison(name, Op.GE, first), Comparison(name, Op.LE, last))))
        found.append(Comparison(name, Op.GE, _between(cuts, 0.99)))
    if 0 < profile.null_ratio < 0.5:
        found.append(IsNull(name))
    return [_question(p, columns, 1 / max(1, len(found)), schema) for p in found]


def _askable(v: Value) -> bool:
    return bool(v.value is not None and v.value == v.value)


def _evenly(values: Sequence[Value], most: int) -> list[Value]:
    if len(values) <= most:
        return list(values)
    return [values[i * len(values) // most] for i in range(most)]


def _between(cuts: Sequence[Any], share: float) -> Any:
    """The value below which this share of the rows lies; between two known values numbers are taken for even."""
    at = share * (len(cuts) - 1)
    low = int(at)
    left, right = cuts[low], cuts[min(low + 1, len(cuts) - 1)]
    if isinstance(left, bool) or not isinstance(left, int | float):
        return left
    if isinstance(left, int):  # by whole numbers: a float near the end of BIGINT rounds past it
        return left + (right - left) * round((at - low) * 2**20) // 2**20
    made = left * (1 - (at - low)) + right * (at - low)  # a difference of the two could be infinite
    return float(made) if math.isfinite(made) else left
