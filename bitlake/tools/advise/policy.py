"""The advice policy: when to recommend which index.  ``advise``, ``explain`` and ``report`` ask it.

Evidence is of two kinds.  What scans read (:class:`ScanCost`) is known from metadata and from the scan log.  It shows
whether an index could save much (:func:`could_save`), never which one does: the recommendation is then to run the
advisor (:func:`advisor_call`).  A trial builds indexes from a sample of the rows and asks them
(:mod:`bitlake.tools.advise.trial`).  Only a trial recommends an index (:func:`recommend`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bitlake.expressions.indexed import has_members, zone_of
from bitlake.expressions.sql_text import name as plain
from bitlake.expressions.sql_text import quote
from bitlake.expressions.tree import IndexedExpression, Leaf
from bitlake.fileindex.capabilities import ColumnFacts, IndexType, MemberWriter
from bitlake.fileindex.named_index import TIMEZONE, declaration
from bitlake.fileindex.registry import (
    IndexSpec,
    changed_index_options,
    index_types,
    known_index_type,
    usable_indexes,
)
from bitlake.formatting import counted, human_bytes
from bitlake.metadata.schema import TableSchema
from bitlake.scan.plan import PlannedFile
from bitlake.tools.scan_log import ScanRecord
from bitlake.types import DataField
from bitlake.types.datatypes import is_scalar

if TYPE_CHECKING:
    from bitlake.tools.advise.questions import ColumnProfile, Question

LEAST_SHARE = 0.15
"""An index that saves less of the bytes is not worth its upkeep."""
LEAST_BYTES = 16 * 1024
"""Nor is one that saves less than a request reads anyway."""
_PAYS_AFTER = 50
"""Queries after which an index must have saved its own size."""
_MOST_OF_TABLE = 0.5
"""An index larger than that part of the data files is never recommended."""
_FEW_PAGES = 0.3
"""Queries that read less of a table are served by its order already."""
_USELESS = 0.02
"""An existing index that saves less of the bytes of given queries is to be dropped."""
_AS_GOOD = 0.8
"""An existing index that saves this part of what the best one saves is kept."""
BUILT = 0.5
"""An index that a larger part of the files has counts as built."""
_MERGED = 0.5
"""Where a larger part of the bytes is in files merged by key, no index helps."""
_FEW_ROWS = 0.02
"""Where indexes leave less than that part of the rows of the files to read, another one saves little."""

_NAME_LENGTH = 40
"""The most characters of an advised index's name, without its number."""

NOT_ASKED = "no query asks about it"


# --- evidence of metadata: whether to run the advisor -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScanCost:
    """The cost of a scan, or of several with the same condition: bytes of one on average, rows in sum.

    ``bytes``: of data and indexes.  ``rows_left``: rows that planning left, of the ``file_rows`` of the files to read.
    ``rows_returned``: None if it is not known how many of them matched.
    """

    bytes: float
    rows_left: int
    file_rows: float
    rows_returned: int | None


def recorded_cost(scans: Sequence[ScanRecord]) -> ScanCost:
    """Return what recorded scans with the same condition read."""
    returned = [s.rows_returned for s in scans if s.rows_returned is not None]
    return ScanCost(
        sum(s.bytes_touched for s in scans) / max(len(scans), 1),
        sum(s.rows_chosen for s in scans),
        sum(s.rows_total * s.bytes_left / max(s.bytes_total, 1) for s in scans),
        sum(returned) if len(returned) == len(scans) else None,
    )


def could_save(cost: ScanCost) -> bool:
    """Return whether an index could save enough of what a scan reads for a trial to be worth its while."""
    if cost.bytes < LEAST_BYTES:
        return False
    if cost.rows_returned is None:
        return cost.rows_left > _FEW_ROWS * cost.file_rows
    spare = 1 - cost.rows_returned / max(cost.rows_left, 1)
    return spare >= LEAST_SHARE and spare * cost.bytes >= LEAST_BYTES


def data_files(files: Sequence[PlannedFile]) -> list[PlannedFile]:
    """The data files of a plan, also those that are merged by key when they are read."""
    return [d for f in files for d in ((f,) if f.merge is None else f.merge.files)]


def merged_share(files: Sequence[PlannedFile]) -> float:
    """Return the part of the bytes of planned files that is merged by key when it is read, and so read whole."""
    total = sum(f.entry.file.file_size for f in data_files(files))
    return sum(f.entry.file.file_size for f in data_files([m for m in files if m.merge is not None])) / max(total, 1)


def indexable(schema: TableSchema, columns: Iterable[str], files: Sequence[PlannedFile]) -> list[str]:
    """Return those columns whose index could skip rows of these files.

    They are not of partitions, of a type that some index takes, and of the key where most files are merged by key.
    """
    fields = {f.name: f.type for f in schema.fields if f.name not in schema.partition_keys}
    if merged_share(files) > _MERGED:
        fields = {name: kind for name, kind in fields.items() if name in schema.primary_keys}
    return [c for c in columns if c in fields and any(index.supports(fields[c]) for index in index_types())]


def first_to_try(schema: TableSchema, leaf: Leaf) -> IndexType | None:
    """Return the index type that suits a condition on an indexable column best, None if no type evaluates it."""
    kind = schema.field(str(leaf.column)).type
    best = max((t for t in index_types() if t.supports(kind)), key=lambda t: t.suitability(leaf, kind), default=None)
    return best if best is not None and best.suitability(leaf, kind) > 0 else None


def advisor_call(table: str, argument: str) -> str:
    """Return the statement that runs the advisor, with an argument such as ``recorded => true``."""
    return f"CALL sys.advise(table => {quote(table)}, {argument})"


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index of a column: ``files`` have it, of ``size`` bytes together; ``wanted``: the options declare it."""

    column: str
    kind: str
    files: int
    size: int
    wanted: bool


def unbuilt(indexes: Sequence[IndexFacts], files: int) -> list[IndexFacts]:
    """Return the declared indexes that some of the table's files lack."""
    return [i for i in indexes if i.wanted and i.files < files]


def lacking_words(index: IndexFacts, files: int) -> str:
    """Say of a declared index that some of the table's files lack it."""
    return (
        f"the options ask for {index.kind} of {index.column}, and {index.files:,} of {counted(files, 'file')} have it"
    )


def undeclared(indexes: Sequence[IndexFacts]) -> list[IndexFacts]:
    """Return the indexes that files have and the options do not declare."""
    return [i for i in indexes if not i.wanted]


# --- evidence of a trial: which index ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """An index that may be worth having."""

    column: str
    index_type: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> IndexSpec:
        """The index's definition, as the builder takes it."""
        return IndexSpec(self.column, self.index_type, dict(self.options))


@dataclass(frozen=True, slots=True)
class IndexEstimate:
    """An index of a column, and the bytes that its questions read without and with it, on average.

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


def candidates_of(
    field: DataField, profile: ColumnProfile, most_in_run: int, *, tests_text: bool = False
) -> list[Candidate]:
    """The indexes worth trying on a column; ``most_in_run``: the most distinct values that a run has of it.

    Indexes of text are tried where queries test the text.
    """
    if profile.distinct <= 1 and not profile.nulls:
        return []
    facts = ColumnFacts(field.type, profile.distinct, most_in_run)
    candidates = []
    # Of equally good indexes the first is advised: one that selects rows.
    for index in sorted(index_types(), key=lambda t: not t.selects_rows):
        options = index.trial_options(facts) if index.supports(field.type) else None
        if options is not None and index.tests_text and not tests_text:
            options = None
        if options is not None and _has_members(field) and not isinstance(index.writer(field.type, {}), MemberWriter):
            options = None
        if options is not None:
            candidates.append(Candidate(field.name, index.name, tuple(options.items())))
    return candidates


def _has_members(field: DataField) -> bool:
    return isinstance(field.name, IndexedExpression) and has_members(field.name)


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
        detail = f", {text} {_fraction(left / was)}" if was and left < chosen.share * was / 4 and len(text) < 60 else ""
        return (
            f"{values}: {chosen.index_type} {human_bytes(chosen.index_bytes)}; {asked} on it would read {part} of the "
            f"bytes ({human_bytes(chosen.bytes_after)} instead of {human_bytes(chosen.bytes_before)}){detail}"
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


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """The advice for a column.  ``action``: ``add``, ``keep``, ``replace`` (another index), ``drop`` or ``none``.

    ``now``: the indexes that its options declare; ``chosen``: the one it should have, with estimates; ``tried``: all
    that were.
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

    @property
    def to_build(self) -> IndexEstimate | None:
        """The index that is recommended and that files lack; None if there is none."""
        return self.chosen if self.action in ("add", "replace") else None


@dataclass(frozen=True, slots=True)
class ColumnTrial:
    """All that the choice of a column's index depends on.

    ``questions``: those about the column, ``given`` by a user rather than assumed; ``tried``: the estimates of the
    declared indexes and of other candidates; ``declared``: the index types that the options declare for it, ``built``:
    those of them that most files have; ``merged_share``: the part of the bytes in files that are merged by key.
    """

    field: DataField
    profile: ColumnProfile | None
    questions: Sequence[Question]
    given: bool
    tried: Sequence[IndexEstimate]
    declared: Sequence[str]
    built: Collection[str]
    table_bytes: int
    merged_share: float


def recommend(trial: ColumnTrial, schema: TableSchema) -> ColumnAdvice:
    """Return what a column should have, and why."""
    column, declared, profile = trial.field.name, tuple(trial.declared), trial.profile
    kind = str(trial.field.type)
    untried = _needless(trial, schema)
    if untried is not None or profile is None:
        action = "keep" if declared else "none"
        return ColumnAdvice(column, kind, action, declared, None, untried or NOT_ASKED, (), profile)
    chosen = best(trial.tried, trial.table_bytes)
    why = reason(profile, chosen, trial.tried, trial.table_bytes, _words(trial.questions))
    action = "none" if chosen is None else "add"
    if chosen is None and trial.merged_share > _MERGED:
        why = (
            f"{describe(profile)}: {100 * trial.merged_share:.0f} % of the bytes are in files merged by key, which are "
            "read whole whatever an index says; compact the table first"
        )
    existing = next((t for t in trial.tried if t.index_type in declared), None)
    if existing is not None:
        action, chosen, why = _beside(trial, existing, chosen, why)
    elif declared:
        action = "keep"
    return ColumnAdvice(column, kind, action, declared, chosen, why, tuple(trial.tried), profile)


def _needless(trial: ColumnTrial, schema: TableSchema) -> str | None:
    """Say why nothing need be tried for a column.  None if something has to be."""
    profile = trial.profile
    if trial.field.name in schema.partition_keys:
        return "partition column: its value chooses files without an index"
    if not is_scalar(trial.field.type):
        return f"values of type {str(trial.field.type).split('<')[0].split(' ')[0]} take no index as a whole"
    if not trial.table_bytes:
        return "the table has no rows yet"
    if profile is None:
        return NOT_ASKED if trial.given else "no file has it yet"
    if profile.distinct <= 1 and not profile.nulls:
        return f"{describe(profile)}: nothing to tell rows apart by"
    return None


def _beside(
    trial: ColumnTrial, existing: IndexEstimate, chosen: IndexEstimate | None, why: str
) -> tuple[str, IndexEstimate | None, str]:
    """Decide what to do with an existing index: (action, the index to have, reason)."""
    kind = existing.index_type
    built = kind in trial.built
    late = "" if built else f"; its {kind} is asked for by the options, and not built yet"
    if chosen is None:
        saved = existing.bytes_saved / existing.bytes_before if existing.bytes_before else 0.0
        if trial.given and saved < _USELESS:
            return "drop", None, f"{why}; its {kind} saves nothing"
        return "keep", existing, f"{why}; it has one, which costs nothing more{late}"
    as_good = worthwhile(existing, trial.table_bytes) and existing.bytes_saved >= _AS_GOOD * chosen.bytes_saved
    if chosen.index_type == kind or as_good:
        return "keep" if built else "add", existing, why + late
    return "replace", chosen, f"{why}; its {kind} saves {100 * max(0.0, 1 - existing.share):.0f} % of the bytes"


def _words(questions: Sequence[Question]) -> str:
    """The kinds of questions in words: ``equality and ranges``."""
    kinds = {q.kind for q in questions}
    if "several" in kinds or "pattern" in kinds or not kinds:
        return "queries"
    names = {"equality": "equality", "list": "IN", "range": "ranges", "null": "IS NULL"}
    words = [text for kind, text in names.items() if kind in kinds and (kind != "null" or kinds == {"null"})]
    if words[:2] == ["equality", "IN"]:
        words = ["equality", *words[2:]]
    return " and ".join(words)


def option_changes(
    options: Mapping[str, str], columns: Sequence[ColumnAdvice], fields: Sequence[DataField]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the table options to set and to unset for this advice; other indexes stay, unless they are replaced."""
    names = {(s.column, s.index_type): s.name for s in usable_indexes(options, fields)}
    advised = [
        IndexSpec(advice.column, new.index_type, dict(new.options))
        for advice in columns
        if (new := advice.to_build) is not None
    ]
    by_name = [s for s in advised if isinstance(s.column, IndexedExpression) or not _is_listed(s)]
    added = [s for s in advised if s not in by_name and not names.get((s.column, s.index_type))]
    dropped = [
        IndexSpec(advice.column, index.name, {}, names.get((advice.column, index.name), ""))
        for advice in columns
        for index in index_types()
        if advice.action == "drop" or (advice.action == "replace" and advice.index != index.name)
    ]
    changed, unset = changed_index_options(options, added, dropped)
    taken = {name.lower() for name in (*names.values(), *(f.name for f in fields))}
    for spec in by_name:
        if (spec.column, spec.index_type) not in names:
            changed |= _declared(spec, taken)
    return {k: v for k, v in changed.items() if options.get(k) != v}, tuple(unset)


def _is_listed(spec: IndexSpec) -> bool:
    """Whether Paimon's options may declare an index."""
    return known_index_type(spec.index_type).in_paimon


def _declared(spec: IndexSpec, taken: set[str]) -> dict[str, str]:
    """The options that declare an index by a name that is not ``taken``, which gets the name."""
    words = re.findall(r"[A-Za-z0-9]+", f"by {spec.column}")
    name = base = "_".join(words)[:_NAME_LENGTH].lower()
    number = 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    options, text = dict(spec.options), plain(spec.column)
    if isinstance(spec.column, IndexedExpression):
        text, zone = spec.column.sql, zone_of(spec.column)
        options |= {} if zone is None else {TIMEZONE: zone}
    return declaration(name, spec.index_type, text, options)


def statements(
    table: str, columns: Sequence[ColumnAdvice], changed: Mapping[str, str], unset: Sequence[str]
) -> list[str]:
    """Return the SQL statements that do what is advised about indexes; empty if nothing is."""
    if not changed and not unset and not any(c.to_build for c in columns):
        return []
    statements = []
    alter = f"ALTER TABLE {sql_name(table)}"
    if unset:
        statements.append(f"{alter} UNSET TBLPROPERTIES ({', '.join(map(quote, unset))})")
    if changed:
        pairs = ", ".join(f"{quote(k)} = {quote(v)}" for k, v in changed.items())
        statements.append(f"{alter} SET TBLPROPERTIES ({pairs})")
    statements.append(rebuild_call(table))
    return statements


def sql_name(table: str) -> str:
    """Return a table's name as SQL takes it, parts that are not plain words in backticks."""
    return ".".join(map(plain, table.split(".")))


def rebuild_call(table: str) -> str:
    """Return the statement that builds declared indexes and drops the others."""
    return f"CALL sys.rewrite_file_index(table => {quote(table)})"
