"""Advice as a value: indexes and layout with reasons, the statements that apply them, and the measured result.

It prints as aligned tables.

Choose an index for each column, and a layout for the table, from estimated reads and costs.

The layout is the sort columns, the number of buckets and the rows of a page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bitlake.expressions.sql_text import name, quote
from bitlake.expressions.sql_text import name as plain
from bitlake.expressions.tree import Comparison, In, Leaf, Op
from bitlake.fileindex.capabilities import ColumnFacts
from bitlake.fileindex.registry import IndexSpec, changed_index_options, index_types
from bitlake.formats.parquet.write import PAGE_ROWS
from bitlake.formatting import counted, human_bytes, printable
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.tools.advise.estimate import Estimator
from bitlake.tools.advise.measured import LAYOUTS, Measured
from bitlake.tools.advise.questions import ColumnProfile, Question, leaves_of
from bitlake.tools.advise.trial import Candidate
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import TIMESTAMPS
from bitlake.write.data_file_writer import page_rows

LEAST_SHARE = 0.15
"""An index that saves less of the bytes is not worth its keeping."""
LEAST_BYTES = 16 * 1024
"""Nor one that saves less than a request brings along anyhow."""
_PAYS_AFTER = 50
"""Queries after which what an index saved is more than what it takes: a rule of thumb, it is read seldom whole."""
_MOST_OF_TABLE = 0.5
"""An index larger than that part of the data files is not advised, whatever it saves."""
_FEW_PAGES = 0.3
"""Queries that read less of a table than that are helped by its order already."""


@dataclass(frozen=True, slots=True)
class IndexEstimate:
    """An index of a column: what it takes, and what its questions read without and with it (bytes, on average).

    ``build_seconds`` are of this machine.
    """

    column: str
    index_type: str
    options: tuple[tuple[str, str], ...]
    index_bytes: int
    build_seconds: float
    bytes_before: float
    bytes_after: float
    best_case: tuple[str, float, float] = ("", 0.0, 0.0)
    """The question that gains most: its text, and what it reads before and after."""

    @property
    def bytes_saved(self) -> float:
        """For each query, on average."""
        return max(0.0, self.bytes_before - self.bytes_after)

    @property
    def share(self) -> float:
        """The part of the bytes that is left to read."""
        return self.bytes_after / self.bytes_before if self.bytes_before else 1.0


def candidates_of(field: DataField, profile: ColumnProfile, most_in_run: int) -> list[Candidate]:
    """The indexes worth trying on a column; ``most_in_run``: the most distinct values that a run has of it."""
    if profile.distinct <= 1 and not profile.nulls:
        return []
    facts = ColumnFacts(field.type, profile.distinct, most_in_run)
    candidates = []
    # Of equally good indexes the first is advised: one that selects rows.
    for index in sorted(index_types(), key=lambda t: not t.selects_rows):
        options = index.trial_options(facts) if index.supports(field.type) else None
        if options is not None:
            candidates.append(Candidate(field.name, index.name, tuple(options.items())))
    return candidates


def estimate(estimator: Estimator, candidate: Candidate, questions: Sequence[Question]) -> IndexEstimate:
    """What a candidate would bring to these questions, on its own."""
    total = sum(q.weight for q in questions) or 1.0
    bare = [estimator.weigh(q, {}).total for q in questions]
    helped = [estimator.weigh(q, {candidate.column: candidate}).total for q in questions]
    before = sum(q.weight * size for q, size in zip(questions, bare, strict=True)) / total
    after = sum(q.weight * size for q, size in zip(questions, helped, strict=True)) / total
    gains = [(size / max(was, 1.0), n) for n, (was, size) in enumerate(zip(bare, helped, strict=True))]
    most = min(gains, default=(1.0, -1))[1]
    return IndexEstimate(
        candidate.column,
        candidate.index_type,
        candidate.options,
        estimator.index_bytes(candidate),
        estimator.build_seconds(candidate),
        before,
        after,
        (questions[most].text, bare[most], helped[most]) if most >= 0 else ("", 0.0, 0.0),
    )


def worthwhile(found: IndexEstimate, table_bytes: int) -> bool:
    """Whether an index saves enough for what it takes."""
    return (
        found.bytes_saved >= LEAST_BYTES
        and found.bytes_saved >= LEAST_SHARE * found.bytes_before
        and found.bytes_saved * _PAYS_AFTER >= found.index_bytes
        and found.index_bytes <= _MOST_OF_TABLE * table_bytes
    )


def best(tried: Sequence[IndexEstimate], table_bytes: int) -> IndexEstimate | None:
    """The index that saves most for its size; None if none is worth it."""
    good = [t for t in tried if worthwhile(t, table_bytes)]
    return max(good, key=lambda t: t.bytes_saved - t.index_bytes / _PAYS_AFTER) if good else None


def reason(
    profile: ColumnProfile, chosen: IndexEstimate | None, tried: Sequence[IndexEstimate], table_bytes: int, asked: str
) -> str:
    """Why, in plain words."""
    values = describe(profile)
    if chosen is not None:
        part = _fraction(chosen.share)
        text, was, left = chosen.best_case
        told = f", {text} {_fraction(left / was)}" if was and left < chosen.share * was / 4 and len(text) < 60 else ""
        return (
            f"{values}: {chosen.index_type} {human_bytes(chosen.index_bytes)}; {asked} on it would read {part} of the "
            f"bytes ({human_bytes(chosen.bytes_after)} instead of {human_bytes(chosen.bytes_before)}){told}"
        )
    reads = "reads" if asked in ("equality", "IN", "IS NULL") else "read"
    if not tried:
        return f"{values}: no index would tell rows apart"
    most = max(tried, key=lambda t: t.bytes_saved)
    if most.bytes_before < LEAST_BYTES or table_bytes < 4 * LEAST_BYTES:
        return f"{values}: {asked} on it {reads} {human_bytes(most.bytes_before)} as it is, there is nothing to save"
    saved = f"the best index, {most.index_type}, would save {100 * most.bytes_saved / most.bytes_before:.0f} %"
    if most.bytes_saved >= LEAST_SHARE * most.bytes_before and most.bytes_saved >= LEAST_BYTES:
        return (
            f"{values}: {saved} of what {asked} {reads}, but takes {human_bytes(most.index_bytes)} beside "
            f"{human_bytes(table_bytes)} of data"
        )
    if most.bytes_before < _FEW_PAGES * table_bytes:
        return (
            f"{values}: {asked} on it {reads} {_fraction(most.bytes_before / table_bytes)} of the table as it is, by "
            f"statistics of files and pages; {saved}"
        )
    return f"{values}: {saved} of what {asked} {reads}, as nearly every page holds a row that matches"


def describe(profile: ColumnProfile) -> str:
    """A column's values in a few words."""
    if profile.rows and profile.nulls == profile.rows:
        return "all NULL"
    count = round(profile.distinct)
    if count == 1:
        return "one value" + (" and NULLs" if profile.nulls else "")
    text = f"{'about ' if count > 2000 else ''}{_rounded(count):,} distinct values, "
    if profile.ascending > 0.999 and profile.cuts:
        text += "in order"
    elif 2 * profile.distinct >= profile.table_rows * (1 - profile.null_ratio):
        text += "hardly any twice"
    elif profile.spread > 0.8:
        text += "scattered"
    elif profile.spread < 0.3:
        text += "each in few places"
    else:
        text += "partly clustered"
    if profile.null_ratio >= 0.01:
        text += f", {100 * profile.null_ratio:.0f} % NULL"
    if profile.top_share >= 0.5:
        text += f", one of them in {100 * profile.top_share:.0f} % of the rows"
    return text


def _rounded(count: int) -> int:
    digits = max(0, len(str(count)) - 2)
    return count if count <= 2000 else round(count, -digits)


def _fraction(share: float) -> str:
    if share <= 0.0005:
        return "next to nothing"
    return f"1/{round(1 / share)}" if share < 0.4 else f"{100 * share:.0f} %"


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
        """As plain values."""
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
        asked = [q for q in questions if _bounded(q, column)]
        kind = schema.field(column).type
        is_time = isinstance(kind, AtomicType) and kind.root in _DATES
        if not asked or column in schema.partition_keys or profile.ascending > 0.99 or (guessed and not is_time):
            continue
        weight = sum(q.weight for q in asked)
        before = sum(q.weight * estimator.weigh(q, chosen).total for q in asked)
        after = sum(q.weight * _sorted_bytes(estimator, q, 1, pages) for q in asked)
        if after < before / 2 and (before - after) / weight >= _WORTH_SAVING:
            gains[column] = (before, after, weight)
    if not gains:
        return None
    order = sorted(gains, key=lambda c: gains[c][1] - gains[c][0])
    first = gains[order[0]][0] - gains[order[0]][1]
    columns = [c for c in order if gains[c][0] - gains[c][1] >= first / 2][: 1 if guessed else 3]

    def together() -> float:
        asked = [q for c in columns for q in questions if _bounded(q, c)]
        return sum(q.weight * _sorted_bytes(estimator, q, len(columns), pages) for q in asked)

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
    """What other questions would read more, which the order that rows lie in now serves, and no index."""
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
    asked = [q for q in questions if any(leaf.column in chosen for leaf in _leaves(q))]
    if not known or not asked or schema.opts.of(opt.PARQUET_PAGE_ROWS) is not None:
        return None
    now = sum(known) / len(known)
    if now < 2 * SMALL_PAGE:
        return None
    weight = sum(q.weight for q in asked)
    before = after = 0.0
    for q in asked:
        size = estimator.weigh(q, chosen)
        large = sum(w.blocks(q.predicate, round(now)) for w in estimator.weighers())
        small = sum(w.blocks(q.predicate, SMALL_PAGE) for w in estimator.weighers())
        before += q.weight * size.total / weight
        after += q.weight * (size.index + size.data * (small / large if large else 1.0)) / weight
    if after > before / 2 or before - after < _WORTH_SAVING:
        return None
    table = ".".join(map(plain, name.split(".")))
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
        tuple(asked),
    )


# --- advice -----------------------------------------------------------------------------------------------------------

_WIDTH = 120
NOT_ASKED = "no query asks about it"


def advice_text(advice: Advice, width: int = 0) -> str:
    """All of it: what was looked at, columns, layout, statements, and what was measured if it was."""
    width = max(60, width or _WIDTH)
    moment = "" if advice.snapshot is None else f" at snapshot {advice.snapshot}"
    lines = [f"Advice for {advice.table}{moment}"]
    lines.append(
        f"  table      {advice.rows:,} rows in {counted(advice.files, 'file')}, {human_bytes(advice.data_bytes)}"
    )
    looked = "all rows" if advice.sampled_rows == advice.rows else f"{advice.sampled_rows:,} rows"
    lines.append(f"  looked at  {looked} of {counted(advice.sampled_files, 'file')} in {advice.seconds:.1f} s")
    lines.append(f"  asked      {counted(len(advice.questions), _singular(advice.asked))}")
    reader = {"spark": "SQL on Spark", "python": "scans in Python"}[advice.engine]
    lines[-1] += f", of {reader}"
    for note in advice.notes:
        lines += _wrapped("  note       ", note, width)
    silent = [c.column for c in advice.columns if c.reason == NOT_ASKED and not c.now]
    shown = [c for c in advice.columns if c.column not in silent]
    lines += ["", *_columns(shown, width)] if shown else []
    if silent:
        lines += ["", *_wrapped("no query asks about ", ", ".join(silent), width, "  ")]
    for item in advice.layout:
        lines += ["", *_wrapped(f"{LAYOUTS[item.kind]} {item.value.replace(',', ', ')}: ", item.reason, width, "  ")]
    statements = advice.statements()
    if statements:
        lines += [
            "",
            f"To do this ({human_bytes(advice.index_bytes)} of indexes, about {advice.build_seconds:.1f} s of work):",
        ]
        lines += [f"  {s};" for s in statements]
    elif not advice.layout:
        lines += ["", "Nothing to change."]
    if advice.layout:
        lines += ["", "To change how rows are laid out (sorting and rescaling read and write the whole table):"]
        lines += [f"  {s};" for s in advice.layout_statements()]
    if advice.measured is not None:
        lines += ["", advice.measured.text()]
    return "\n".join(lines)


def _singular(asked: str) -> str:
    return {"queries": "query", "recorded scans": "recorded scan", "typical questions": "typical question"}[asked]


def _columns(columns: Sequence[ColumnAdvice], width: int) -> list[str]:
    head = ("column", "now", "advice", "index", "build", "saved a query")
    rows = [head, *(_row(c) for c in columns)]
    wide = [max(len(r[i]) for r in rows) for i in range(len(head))]
    lines = []
    for n, row in enumerate(rows):
        shown = [v.ljust(w) if i < 3 else v.rjust(w) for i, (v, w) in enumerate(zip(row, wide, strict=True))]
        lines.append("  ".join(shown).rstrip())
        if n == 0:
            lines.append("  ".join("-" * w for w in wide))
        else:
            lines += _wrapped("    ", columns[n - 1].reason, width)
    return lines


def _row(c: ColumnAdvice) -> tuple[str, ...]:
    words = {"add": c.index, "replace": c.index, "keep": "keep", "drop": "drop", "none": "none"}
    now = ", ".join(c.now) or "-"
    if c.chosen is None:
        return c.column, now, words[c.action], "", "", ""
    saved = f"{human_bytes(c.chosen.bytes_saved)} ({100 * (1 - c.chosen.share):.0f} %)"
    seconds = f"{c.chosen.build_seconds:.1f} s" if c.action in ("add", "replace") else ""
    return c.column, now, words[c.action], human_bytes(c.chosen.index_bytes), seconds, saved


def _wrapped(first: str, text: str, width: int, rest: str | None = None) -> list[str]:
    more = " " * len(first) if rest is None else rest
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=more, break_long_words=False) or [first]


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """What a column should have.  ``action``: ``add``, ``keep``, ``replace`` (another index), ``drop`` or ``none``.

    ``now``: the indexes that it has; ``chosen``: the one it should have, with estimates; ``tried``: all that were.
    """

    column: str
    type: str
    action: str
    now: tuple[str, ...]
    chosen: IndexEstimate | None
    reason: str
    tried: tuple[IndexEstimate, ...] = ()
    profile: ColumnProfile | None = None

    @property
    def index(self) -> str:
        """The index the column should have, or ``none``."""
        return "none" if self.chosen is None else self.chosen.index_type


@dataclass(frozen=True, slots=True)
class QuestionEstimate:
    """A question, and the bytes it reads of data and indexes as the table is, and as it should be."""

    question: Question
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What ``table.indexes.advise()`` says.

    Nothing is changed before :meth:`apply`.  Sizes are bytes.  ``asked``: where the questions come from (``queries``,
    ``recorded scans`` or ``typical questions``); ``engine``: who reads for them, ``spark`` or ``python``.
    """

    table: str
    snapshot: int | None
    rows: int
    data_bytes: int
    files: int
    sampled_rows: int
    sampled_files: int
    seconds: float
    asked: str
    engine: str
    columns: tuple[ColumnAdvice, ...]
    layout: tuple[LayoutAdvice, ...]
    questions: tuple[QuestionEstimate, ...]
    set_options: Mapping[str, str]
    unset_options: tuple[str, ...]
    notes: tuple[str, ...] = ()
    measured: Measured | None = None
    _apply: Callable[[Advice, Callable[[str], Any] | None, bool], Measured] | None = field(
        default=None, repr=False, compare=False
    )

    def __repr__(self) -> str:
        changes = len(self.set_options) + len(self.unset_options)
        layout = counted(len(self.layout), "layout change")
        return f"Advice({self.table}: {counted(changes, 'option')} to change, {layout})"

    @property
    def index_bytes(self) -> int:
        """Of all indexes that should be added."""
        return sum(c.index_bytes for c in self._new())

    @property
    def build_seconds(self) -> float:
        """About how long building them takes on this machine."""
        return float(sum(c.build_seconds for c in self._new()))

    def _new(self) -> list[IndexEstimate]:
        return [c.chosen for c in self.columns if c.action in ("add", "replace") and c.chosen is not None]

    def statements(self) -> list[str]:
        """The SQL statements that do what is advised about indexes; empty if nothing is."""
        if not self.set_options and not self.unset_options:
            return []
        found = []
        alter = f"ALTER TABLE {'.'.join(map(name, self.table.split('.')))}"
        if self.unset_options:
            found.append(f"{alter} UNSET TBLPROPERTIES ({', '.join(map(quote, self.unset_options))})")
        if self.set_options:
            pairs = ", ".join(f"{quote(k)} = {quote(v)}" for k, v in self.set_options.items())
            found.append(f"{alter} SET TBLPROPERTIES ({pairs})")
        found.append(f"CALL sys.rewrite_file_index(table => {quote(self.table)})")
        return found

    def layout_statements(self) -> list[str]:
        """The statements that would lay the rows out as advised; each reads and writes the whole table."""
        return [s for advice in self.layout for s in advice.statements]

    def apply(self, sql: Callable[[str], Any] | None = None, *, layout: bool = False) -> Advice:
        """Add the indexes that are advised, and measure what that brought; returns the advice with ``measured`` set.

        In this process, or by ``sql`` (such as ``lake.sql``), which builds on Spark.  With ``layout``, it
        also runs :meth:`layout_statements`, which rewrite the rows in another layout, and measures what they brought;
        sorting needs ``sql``.
        """
        assert self._apply is not None
        return replace(self, measured=self._apply(self, sql, layout))

    def text(self, width: int = 0) -> str:
        """The advice for people; ``width``: columns of the terminal, 0 for any."""

        return printable(advice_text(self, width))

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """The advice as plain values."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "rows": self.rows,
            "data_bytes": self.data_bytes,
            "files": self.files,
            "sampled_rows": self.sampled_rows,
            "sampled_files": self.sampled_files,
            "seconds": round(self.seconds, 3),
            "asked": self.asked,
            "engine": self.engine,
            "columns": [_column(c) for c in self.columns],
            "layout": [item.to_dict() for item in self.layout],
            "questions": [
                {
                    "where": q.question.text,
                    "weight": q.question.weight,
                    "before": round(q.before),
                    "after": round(q.after),
                }
                for q in self.questions
            ],
            "index_bytes": self.index_bytes,
            "build_seconds": round(self.build_seconds, 3),
            "statements": self.statements(),
            "layout_statements": self.layout_statements(),
            "notes": list(self.notes),
            "measured": None if self.measured is None else self.measured.to_dict(),
        }


def _index(found: IndexEstimate) -> dict[str, Any]:
    return {
        "index": found.index_type,
        "options": dict(found.options),
        "index_bytes": found.index_bytes,
        "build_seconds": round(found.build_seconds, 3),
        "bytes_before": round(found.bytes_before),
        "bytes_after": round(found.bytes_after),
        "bytes_saved": round(found.bytes_saved),
    }


def _column(c: ColumnAdvice) -> dict[str, Any]:
    p = c.profile
    return {
        "column": c.column,
        "type": c.type,
        "action": c.action,
        "now": list(c.now),
        "index": c.index,
        "reason": c.reason,
        "estimate": None if c.chosen is None else _index(c.chosen),
        "tried": [_index(t) for t in c.tried],
        "values": None
        if p is None
        else {
            "distinct": round(p.distinct),
            "null_ratio": round(p.null_ratio, 4),
            "spread": round(p.spread, 4),
            "ascending": round(p.ascending, 4),
            "most_frequent_share": round(p.top_share, 4),
        },
    }


def changed_options(
    options: Mapping[str, str], columns: Sequence[ColumnAdvice], kinds: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the table options to set and to unset for this advice; other indexes stay, unless they are replaced."""
    added = [
        IndexSpec(advice.column, advice.chosen.index_type, dict(advice.chosen.options))
        for advice in columns
        if advice.action in ("add", "replace") and advice.chosen is not None
    ]
    dropped = [IndexSpec(advice.column, kind, {}) for advice in columns for kind in kinds if _is_dropped(advice, kind)]
    changed, unset = changed_index_options(options, added, dropped)
    return changed, tuple(unset)


def _is_dropped(advice: ColumnAdvice, kind: str) -> bool:
    if advice.action == "drop":
        return True
    return advice.action == "replace" and advice.chosen is not None and advice.chosen.index_type != kind
