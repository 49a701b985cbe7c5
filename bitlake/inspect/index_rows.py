"""The rows of one value, as each index of a column tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitlake.codec.roaring import positions_of
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.binder import bind
from bitlake.expressions.sql_text import name as column_name
from bitlake.expressions.sql_text import quote
from bitlake.expressions.tree import Comparison, IsNull, MapKey, Op, Predicate
from bitlake.fileindex.container import EMPTY
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import ROW_SELECTIVE, indexed_type
from bitlake.fileindex.selection import Kind, Selection
from bitlake.inspect.rows import runs_of, runs_text
from bitlake.inspect.source import Source
from bitlake.inspect.tree import Page
from bitlake.types import AtomicType, DataField
from bitlake.types.datatypes import STRINGS


@dataclass(frozen=True, slots=True)
class ValueRows:
    """What one index says of one value.

    ``answer``: ``rows`` (these have it), ``maybe`` (these may), ``none`` (no row has it), ``unknown`` (the index cannot
    tell).  ``runs``: a page of [first, last] positions, ``more`` of them are not shown; ``count``: rows in all.
    """

    column: str
    index: str
    value: str
    answer: str
    count: int
    runs: tuple[tuple[int, int], ...] = ()
    more: int = 0
    problem: str | None = None

    def __str__(self) -> str:
        start = f"{self.index}({self.column}), {self.value}: "
        if self.problem is not None:
            return start + f"cannot be read: {self.problem}"
        match self.answer:
            case "none":
                return start + "surely in no row"
            case "unknown":
                return start + "this index cannot tell"
            case "maybe" if not self.runs:
                return start + "may be there (a bloom filter only rules values out)"
        sure = "exactly" if self.answer == "rows" else "at most"
        return start + f"{sure} {self.count:,} rows: {runs_text([list(r) for r in self.runs], self.more)}"

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        out = {k: getattr(self, k) for k in ("column", "index", "value", "answer", "count", "more", "problem")}
        return {**out, "runs": [list(r) for r in self.runs]}


def rows_of_value(
    source: Source,
    columns: Mapping[str, Mapping[str, tuple[int, int]]],
    fields: Sequence[DataField],
    row_count: int | None,
    column: str,
    value: Any,
    page: Page,
    timezone: str = "UTC",
) -> list[ValueRows]:
    """What each index of a column says of a value: a Python value, or text that Spark would read as one; None is NULL.

    ``columns``: of the container's header.  Raises :class:`NotFound` for a column without an index and
    :class:`InvalidRequest` for a value that the column's type cannot have, or when the type is not known.
    """
    name = next((c for c in columns if c == column), None) or next(
        (c for c in columns if c.lower() == column.lower()), None
    )
    if name is None:
        raise NotFound(f"no index of column '{column}' is there; indexed are {', '.join(columns) or 'none'}")
    known = indexed_type(name, fields)
    if known is None:
        raise InvalidRequest(f"the type of column '{name}' is not known: its table's schema cannot be read")
    field, key, kind = known
    leaf_column: str = name if key is None else MapKey(field.name, key)
    predicate = _condition(leaf_column, kind, value, fields, timezone)
    shown = f"{column_name(leaf_column)} = {value!r}" if value is not None else f"{column_name(leaf_column)} IS NULL"
    out = []
    for index, place in columns[name].items():
        if place == EMPTY:
            out.append(ValueRows(name, index, shown, "none", 0))
            continue
        rows = _rows(source, place, index) if row_count is None else row_count
        opened = open_index(source.from_here(0), source.size, fields, rows)
        opened.columns = {name: {index: place}}
        found = opened.evaluate(predicate)
        problem = opened.problems[0] if opened.problems else None
        out.append(_told(name, index, shown, found, rows, page, problem))
    return out


def _condition(column: str, kind: Any, value: Any, fields: Sequence[DataField], timezone: str) -> Predicate:
    if value is None:
        return bind(IsNull(column), fields, timezone)
    text = isinstance(kind, AtomicType) and kind.root in STRINGS
    if isinstance(value, str) and not text:  # as SQL reads a literal, so that '2024-02-29' is a date
        from bitlake.expressions.parser import parse_predicate  # brings sqlglot, which only SQL text needs

        return bind(parse_predicate(f"{column_name(column)} = {quote(value)}", timezone), fields, timezone)
    return bind(Comparison(column, Op.EQ, value), fields, timezone)


def _rows(source: Source, place: tuple[int, int], index: str) -> int:
    """The rows that an index itself says it has."""
    at = {"bitmap": 1, "bsi": 1, "range-bitmap": 5}.get(index)
    if at is None or place[1] < at + 4:
        return 0
    return int.from_bytes(source.view(place[0] + at, 4), "big")


def _told(
    column: str, index: str, value: str, found: Selection, rows: int, page: Page, problem: str | None
) -> ValueRows:
    if problem is not None:
        return ValueRows(column, index, value, "unknown", rows, problem=problem)
    if found.is_empty:
        return ValueRows(column, index, value, "none", 0)
    if found.kind is Kind.ALL and not found.exact:
        return ValueRows(column, index, value, "unknown" if index in ROW_SELECTIVE else "maybe", rows)
    if found.rows is None:
        return ValueRows(column, index, value, "rows" if rows else "none", rows, ((0, rows - 1),) if rows else ())
    positions = positions_of(found.rows)
    runs, more = runs_of(positions, page)
    shown = tuple((a, b) for a, b in runs)
    return ValueRows(column, index, value, "rows" if found.exact else "maybe", len(positions), shown, more)
