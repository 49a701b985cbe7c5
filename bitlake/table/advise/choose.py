"""Which index a column should have, if any, and why: by what its questions read with each, and what each costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitlake.fileindex.registry import INDEX_TYPES
from bitlake.formatting import human_bytes
from bitlake.table.advise.estimate import Estimator
from bitlake.table.advise.profile import ColumnProfile
from bitlake.table.advise.questions import Question
from bitlake.table.advise.trial import Candidate
from bitlake.types import DataField

LEAST_SHARE = 0.15
"""An index that saves less of the bytes is not worth its keeping."""
LEAST_BYTES = 16 * 1024
"""Nor one that saves less than a request brings along anyhow."""
_PAYS_AFTER = 50
"""Queries after which what an index saved is more than what it takes: a rule of thumb, it is read seldom whole."""
_MOST_OF_TABLE = 0.5
"""An index larger than that part of the data files is not advised, whatever it saves."""
_MOST_BITMAPS = 50_000
"""Distinct values in a run beyond which a bitmap for each is not tried: a range-bitmap does the same with less."""
_FEW_PAGES = 0.3
"""Queries that read less of a table than that are helped by its order already."""
_FPP = "0.01"


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
    found = []
    if INDEX_TYPES["bitmap"].supports(field.type) and most_in_run <= _MOST_BITMAPS:
        found.append(Candidate(field.name, "bitmap"))
    if INDEX_TYPES["range-bitmap"].supports(field.type) and profile.distinct > 8:
        found.append(Candidate(field.name, "range-bitmap"))
    if INDEX_TYPES["bloom-filter"].supports(field.type) and profile.distinct > 100:
        found.append(Candidate(field.name, "bloom-filter", (("fpp", _FPP),)))
    return found


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
