"""The layout that a trial recommends: sort columns, number of buckets and rows of a page.

Estimates come from the trial of indexes (:mod:`bitlake.tools.advise.estimate`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bitlake.expressions.sql_text import quote
from bitlake.expressions.tree import Comparison, In, Leaf, Op, leaves_of
from bitlake.fileindex.cost import PAGE_ROWS
from bitlake.formatting import human_bytes
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.tools.advise.estimate import Estimator
from bitlake.tools.advise.policy import Candidate, sql_name
from bitlake.tools.advise.questions import Question
from bitlake.types import AtomicType, Root
from bitlake.types.datatypes import TIMESTAMPS
from bitlake.write.data_file_writer import page_rows

_WORTH_SORTING = 8 << 20
_WORTH_SAVING = 1 << 20
"""Bytes of a query below which no other layout is worth a rewrite of the table."""
_BUCKET_BYTES = 1 << 30
"""Paimon's guide: 200 MB to 1 GB a bucket."""
_LARGE_BUCKET = 2 << 30
_SMALL_BUCKET = 32 << 20
_MANY_BUCKETS = 16
SMALL_PAGE = 1024
_BENDS = 1.6
"""Random points in two and three dimensions in 30 to 1,000 pages: 1.45 to 1.7 parts for a single value."""
_DATES = TIMESTAMPS | {Root.DATE}


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """One advice on how rows lie.  ``kind``: ``sort``, ``zorder``, ``bucket`` or ``page``.

    ``bytes_before`` and ``bytes_after`` are of one query of those it is about, on average; None for buckets, which are
    about how much work runs side by side.  Sorting and rescaling read and write the whole table.
    """

    kind: str
    columns: tuple[str, ...]
    value: str
    reason: str
    statements: tuple[str, ...]
    bytes_before: float | None = None
    bytes_after: float | None = None
    questions: tuple[Question, ...] = field(default=(), repr=False)
    """Those that it is about."""

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain values."""
        return asdict(replace(self, questions=())) | {"questions": [q.text for q in self.questions]}


def advise_sort(
    estimator: Estimator, questions: Sequence[Question], chosen: Mapping[str, Candidate], name: str, guessed: bool
) -> LayoutAdvice | None:
    """By which columns an append table without buckets should be sorted; of ``guessed`` questions only by times."""
    schema = estimator.scan.state.schema
    if schema.primary_keys or schema.num_buckets != -1 or estimator.table_bytes < _WORTH_SORTING:
        return None
    pages = PAGE_ROWS if chosen and schema.opts.of(opt.PARQUET_PAGE_ROWS) is None else page_rows(schema)
    gains: dict[str, tuple[float, float, float]] = {}
    for column, profile in estimator.columns.items():
        kind = schema.field(column).type
        is_time = isinstance(kind, AtomicType) and kind.root in _DATES
        if column in schema.partition_keys or profile.ascending > 0.99 or (guessed and not is_time):
            continue
        bounded = [q for q in questions if _bounded(q, column)]
        if not bounded:
            continue
        weight = sum(q.weight for q in bounded)
        before = sum(q.weight * estimator.weigh(q, chosen).total for q in bounded)
        after = sum(q.weight * _sorted_bytes(estimator, q, 1, pages) for q in bounded)
        if after < before / 2 and (before - after) / weight >= _WORTH_SAVING:
            gains[column] = (before, after, weight)
    if not gains:
        return None
    order = sorted(gains, key=lambda c: gains[c][1] - gains[c][0])
    first = gains[order[0]][0] - gains[order[0]][1]
    columns = [c for c in order if gains[c][0] - gains[c][1] >= first / 2][: 1 if guessed else 3]

    def together() -> float:
        bounded = [q for c in columns for q in questions if _bounded(q, c)]
        return sum(q.weight * _sorted_bytes(estimator, q, len(columns), pages) for q in bounded)

    if len(columns) > 1 and together() >= sum(gains[c][0] for c in columns) / 2:
        columns = columns[:1]
    before, after = sum(gains[c][0] for c in columns), together()
    if 2 * _lost(estimator, questions, columns, chosen) > before - after:
        return None
    weight = sum(gains[c][2] for c in columns)
    before, after = before / weight, after / weight
    strategy = "order" if len(columns) == 1 else "zorder"
    listed, it = ",".join(columns), "it" if len(columns) == 1 else "them"
    return LayoutAdvice(
        "sort" if len(columns) == 1 else "zorder",
        tuple(columns),
        listed,
        f"rows lie in no order of {' and '.join(columns)}: sorted by {it}, queries on {it} would read "
        f"{human_bytes(after)} instead of {human_bytes(before)}",
        (f"CALL sys.compact(table => {quote(name)}, order_strategy => '{strategy}', order_by => '{listed}')",),
        before,
        after,
        tuple(q for q in questions if any(_bounded(q, c) for c in columns)),
    )


def _lost(
    estimator: Estimator, questions: Sequence[Question], columns: Sequence[str], chosen: Mapping[str, Candidate]
) -> float:
    """Estimate what other questions would read more: those that today's order of rows serves, and no index."""
    lost = 0.0
    for q in questions:
        others = {leaf.column for leaf in _leaves(q)}
        if others & {*columns, *chosen, *estimator.scan.state.schema.partition_keys}:
            continue
        whole = estimator.table_bytes * estimator.column_share(q.needed)
        lost += q.weight * max(0.0, whole - estimator.weigh(q, chosen).total)
    return lost


def _bounded(question: Question, column: str) -> bool:
    return question.kind in ("equality", "list", "range") and any(leaf.column == column for leaf in _leaves(question))


def _leaves(question: Question) -> list[Leaf]:
    return leaves_of(question.predicate)


def _sorted_bytes(estimator: Estimator, question: Question, dimensions: int, pages: int) -> float:
    """Estimate the bytes that a question reads if rows are sorted by its column, or along a curve through several.

    ``dimensions``: the number of columns; ``pages``: the number of rows in a page.  Each page then holds a stretch of a
    column's values: all rows' pages cut each of d columns into as many parts as the d-th root of their number.  A range
    touches its share of those, and on average one more (along a Z-curve 1.6, as pages lie across its bends).
    """
    matching = sum(len(m) for w in estimator.weighers() for m in w.matching(question.predicate))
    rows = sum(w.rows for w in estimator.weighers()) or 1
    stretches = sum(len(leaf.values) if isinstance(leaf, In) else 1 for leaf in _leaves(question))
    part = float((pages / max(estimator.table_rows, pages)) ** (1 / dimensions))
    if all(isinstance(leaf, Comparison) and leaf.op is not Op.EQ for leaf in _leaves(question)):
        stretches = 1  # two bounds of one range
    bends = 1.0 if dimensions == 1 else _BENDS
    share = min(1.0, matching / rows + stretches * bends * part)
    return share * estimator.table_bytes * estimator.column_share(question.needed)


def advise_buckets(estimator: Estimator, name: str) -> LayoutAdvice | None:
    """Into how many fixed buckets the rows should go; None where there are none, or they are well."""
    schema: TableSchema = estimator.scan.state.schema
    buckets = schema.num_buckets
    if buckets <= 0 or not estimator.files:
        return None
    used: dict[tuple[bytes, int], int] = {}
    for f in estimator.files:
        key = (f.entry.partition, f.entry.bucket)
        used[key] = used.get(key, 0) + f.entry.file.file_size
    size = sum(used.values()) / len(used)
    if size > _LARGE_BUCKET:
        wanted = math.ceil(buckets * size / _BUCKET_BYTES)
        why = f"a bucket has {human_bytes(size)}: more buckets are written and merged side by side"
    elif size < _SMALL_BUCKET and buckets >= _MANY_BUCKETS and len(used) >= _MANY_BUCKETS:
        wanted = max(1, round(buckets * size / _BUCKET_BYTES * 4))
        why = f"{buckets} buckets of {human_bytes(size)} on average: fewer would have larger files, and fewer of them"
    else:
        return None
    if wanted == buckets:
        return None
    return LayoutAdvice(
        "bucket", (), str(wanted), why, (f"CALL sys.rescale(table => {quote(name)}, bucket_num => {wanted})",)
    )


def advise_pages(
    estimator: Estimator, questions: Sequence[Question], chosen: Mapping[str, Candidate], name: str
) -> LayoutAdvice | None:
    """Whether smaller pages would save much of what is read for rows that indexes choose."""
    schema = estimator.scan.state.schema
    known = [r for w in estimator.weighers() if (r := w.pages.page_rows()) is not None]
    of_columns = [q for q in questions if any(leaf.column in chosen for leaf in _leaves(q))]
    if not known or not of_columns or schema.opts.of(opt.PARQUET_PAGE_ROWS) is not None:
        return None
    now = sum(known) / len(known)
    if now < 2 * SMALL_PAGE:
        return None
    weight = sum(q.weight for q in of_columns)
    before = after = 0.0
    for q in of_columns:
        size = estimator.weigh(q, chosen)
        large = sum(w.blocks(q.predicate, round(now)) for w in estimator.weighers())
        small = sum(w.blocks(q.predicate, SMALL_PAGE) for w in estimator.weighers())
        before += q.weight * size.total / weight
        after += q.weight * (size.index + size.data * (small / large if large else 1.0)) / weight
    if after > before / 2 or before - after < _WORTH_SAVING:
        return None
    table = sql_name(name)
    return LayoutAdvice(
        "page",
        (),
        str(SMALL_PAGE),
        f"pages have {now:,.0f} rows, of which indexes choose few: with {SMALL_PAGE:,} rows a query would read "
        f"{human_bytes(after)} instead of {human_bytes(before)}; reading whole "
        "columns takes up to twice the time.  It is for files that are written from then on; those of a table with "
        f"indexes have pages of {PAGE_ROWS:,} rows anyhow",
        (f"ALTER TABLE {table} SET TBLPROPERTIES ('{opt.PARQUET_PAGE_ROWS.name}' = '{SMALL_PAGE}')",),
        before,
        after,
        tuple(of_columns),
    )
