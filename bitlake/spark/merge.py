"""MERGE INTO append tables: which rows of the target each clause hits, then what becomes of them, in one snapshot.

First only what ON and the clauses' conditions need of the target is read, to find hits; then what values of it updated
rows keep or SET computes with, of those rows alone: nothing, if the new rows are made of the source's
(:mod:`bitlake.spark.merge_pairs`).  The source is evaluated once.  Each kind of clause is a query of its own, so that
names mean what they mean in it: ``target JOIN source`` for WHEN MATCHED, ``source ANTI JOIN target`` for WHEN NOT
MATCHED, ``target ANTI JOIN source`` for WHEN NOT MATCHED BY SOURCE.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pyroaring import BitMap
from pyspark.sql import DataFrame

from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.metadata.manifest import ManifestEntry
from bitlake.spark.context import EngineContext
from bitlake.spark.delete import retried
from bitlake.spark.dml import write_frame
from bitlake.spark.keyed_merge import merge_keyed
from bitlake.spark.merge_clauses import (
    Clause,
    Merged,
    action,
    clauses_of,
    items,
    kept_columns,
    matched_twice,
    new_rows,
    unmatched,
)
from bitlake.spark.merge_pairs import PAIR, Pairs, kept_pairs, rows_of_source
from bitlake.spark.merge_schema import evolution, merged_state, merging
from bitlake.spark.merge_source import ROW, Source, key_predicates, of_source_alone, source_of
from bitlake.spark.positions import Gathered, gather
from bitlake.spark.runner import SparkRunner
from bitlake.spark.target import Target, counts
from bitlake.sql import statements as st
from bitlake.table.append_delete import take_out
from bitlake.table.append_update import discard_all

_RANDOM = re.compile(r"\b(rand|randn|random|uuid|shuffle|uniform|randstr|monotonically_increasing_id)\s*\(", re.I)
_CLOCK = re.compile(r"\b(current_\w+|now|localtimestamp|curdate|unix_timestamp)\b", re.I)


def merge(context: EngineContext, statement: st.MergeInto) -> DataFrame:
    """Run a MERGE; returns how many rows it updated, deleted and inserted.

    Raises :class:`InvalidRequest` if several source rows would change one row of the target.
    """
    target = Target.of(context, statement.table, statement.alias, statement.with_)
    check_conditions(target, statement)
    context.names.check(target.table.name, target.state.schema.field_names)
    with source_of(context, statement) as source:
        how = merging(context, context.identify(statement.table), target.table, evolution(statement.evolve))
        if how.on and any(c.assignments is None and c.action is not st.MergeAction.DELETE for c in statement.clauses):
            rows = source.frame.drop(ROW)
            target = replace(target, state=merged_state(context, target.table, target.state, rows, how))
            statement = replace(statement, lenient=True)

        def step(now: Target) -> Merged:
            if now.state.schema.primary_keys:
                return merge_keyed(now, source, statement)
            now.table.check_writable(now.state)
            return _Merge.of(now, source, statement).run()

        done = retried(target, step)
    total = done.updated + done.deleted + done.inserted
    return counts(
        context,
        num_affected_rows=total,
        num_updated_rows=done.updated,
        num_deleted_rows=done.deleted,
        num_inserted_rows=done.inserted,
    )


def check_conditions(target: Target, statement: st.MergeInto) -> None:
    """Raise for conditions whose answer may change from one query to the next."""
    for text in (statement.condition, *(c.condition or "" for c in statement.clauses)):
        found = _RANDOM.search(text)
        if found is not None:
            raise InvalidRequest(
                f"MERGE INTO '{target.table.name}': a condition cannot use {found.group(1).lower()}(), "
                "which gives another value each time; compute it in the source instead"
            )


@dataclass(slots=True)
class _Merge:
    """One try of a MERGE.  Mutable."""

    target: Target
    """All rows."""
    near: Target
    """The rows that can match a row of the source."""
    source: Source
    statement: st.MergeInto
    matched: Sequence[Clause]
    missing: Sequence[Clause]
    orphaned: Sequence[Clause]
    plain: bool
    """Whether WHEN MATCHED makes no row that needs a value of the target."""
    hits: dict[str, BitMap] = field(default_factory=dict)
    deleted: int = 0
    pairs: Pairs | None = None
    again: int = 0
    """Rows that are found once more to be updated."""

    @classmethod
    def of(cls, target: Target, source: Source, statement: st.MergeInto) -> _Merge:
        near = replace(target, pushed=key_predicates(target, source, statement.condition))
        kinds = (st.When.MATCHED, st.When.NOT_MATCHED, st.When.NOT_MATCHED_BY_SOURCE)
        matched, missing, orphaned = (clauses_of(target, source, statement, kind) for kind in kinds)
        updating = [c for c in matched if c.action is st.MergeAction.UPDATE]
        values = [v for c in updating for v in c.values.values()]
        plain = not kept_columns(target, updating) and all(of_source_alone(target, source, v) for v in values)
        return cls(target, near, source, statement, matched, missing, orphaned, plain)

    def run(self) -> Merged:
        """Find, write, commit."""
        state, table = self.target.state, self.target.table
        with ExitStack() as stack:
            found, left = self._find_matched(stack), self._find_left()
            again = self._updated(self.orphaned, left)
            again += [] if self.plain else self._updated(self.matched, found)
            once = self._of_source(found)
            gone = take_out(state, self.hits, SparkRunner(self.target.context.spark))
            expected = gone.rows - self.deleted
            files: list[ManifestEntry] = []
            try:
                if again and once and self._tells_time:
                    files += self._write(again)
                    self._check(files, self.again)
                    files += self._write(once)
                else:
                    files += self._write([*again, *once])
                if not self.missing:
                    self._check(files, expected)
            except BaseException:
                discard_all(state, gone, files)
                raise
        if gone.rows:
            table.commit_rows(state, gone, "MERGE", files)
        else:
            table.commit_files(state, files, "MERGE")
        return Merged(expected, self.deleted, _rows(files) - expected)

    def _check(self, files: Sequence[ManifestEntry], expected: int) -> None:
        if _rows(files) != expected:
            raise CommitConflict(
                f"MERGE INTO '{self.target.table.name}': {expected} rows were to be updated and {_rows(files)} were; "
                "a condition or the source gave another answer the second time"
            )

    @property
    def _tells_time(self) -> bool:
        texts = (self.statement.condition, *(c.condition or "" for c in self.statement.clauses))
        return any(_CLOCK.search(t) for t in texts)

    # --- which rows --------------------------------------------------------------------------------------------------

    def _find_matched(self, stack: ExitStack) -> Gathered:
        if not self.matched:
            return Gathered()
        updates = any(c.action is st.MergeAction.UPDATE for c in self.matched)
        kept = stack if self.missing or (self.plain and updates) else None
        found = self._find(self.near, self.matched, f"JOIN {self.source.item} ON ({self.statement.condition})", kept)
        only = self.matched[0]
        harmless = len(self.matched) == 1 and only.condition is None and only.action is st.MergeAction.DELETE
        if found.twice and not harmless:
            raise matched_twice(self.target, sum(len(rows) for rows in found.twice.values()))
        return found

    def _find_left(self) -> Gathered:
        if not self.orphaned:
            return Gathered()
        join = f"LEFT ANTI JOIN {self.source.item} ON ({self.statement.condition})"
        return self._find(self.target, self.orphaned, join, None)

    def _find(self, target: Target, clauses: Sequence[Clause], join: str, kept: ExitStack | None) -> Gathered:
        """Where rows are and what becomes of them; with ``kept``, :attr:`pairs` last as long as that."""
        doing = f"MERGE INTO '{target.table.name}'"
        chosen, pair = action(clauses), f", {self.source.row} AS {PAIR}" if kept is not None else ""
        inner = f"{target.path} AS file, {target.index} AS position, {chosen} AS action{pair}"
        if kept is None or not self.missing:
            outer, where = "*", " WHERE action IS NOT NULL"
        else:  # of pairs that are left as they are, only that there is one
            at = (f"CASE WHEN action IS NOT NULL THEN {c} END AS {c}" for c in ("file", "position"))
            outer, where = f"{', '.join(at)}, action, {PAIR}", ""
        before = f"SELECT {outer} FROM (SELECT {self.source.hint}{inner} FROM"
        frame = target.query(before, f"{join}){where}", positions=True)
        if kept is not None:
            self.pairs = kept.enter_context(kept_pairs(target.context, frame, doing))
            frame = self.pairs.frame.where("action IS NOT NULL").select("file", "position", "action")
        found = gather(frame, doing)
        for name, rows in found.hits.items():
            self.hits[name] = self.hits[name] | rows if name in self.hits else rows
        gone = {c.number for c in clauses if c.action is st.MergeAction.DELETE}
        self.deleted += sum(len(r) for n in gone for r in found.by_action.get(n, {}).values())
        return found

    # --- new rows ----------------------------------------------------------------------------------------------------

    def _updated(self, clauses: Sequence[Clause], found: Gathered) -> list[DataFrame]:
        """The rows that UPDATE clauses hit, as they are to be."""
        updating = [c for c in clauses if c.action is st.MergeAction.UPDATE]
        hits: dict[str, BitMap] = {}
        for clause in updating:
            for name, rows in found.by_action.get(clause.number, {}).items():
                hits[name] = hits[name] | rows if name in hits else rows
        if not hits:
            return []
        self.again += sum(len(rows) for rows in hits.values())
        # Rows that no source row matches are known by where they are.
        joined = clauses is self.matched
        join = f"JOIN {self.source.item} ON ({self.statement.condition})" if joined else ""
        old = kept_columns(self.target, updating)
        before = f"SELECT {self.source.hint if joined else ''}{items(self.target, clauses, old)} FROM"
        frame = self.target.query(before, join, hits=hits, refiltered=joined)
        return [new_rows(self.target, frame, updating)]

    def _of_source(self, found: Gathered) -> list[DataFrame]:
        """The rows that are made of the source's alone."""
        updating = [c for c in self.matched if self.plain and found.by_action.get(c.number)]
        updating = [c for c in updating if c.action is st.MergeAction.UPDATE]
        if not updating and not self.missing:
            return []
        if self.pairs is not None:
            frame, clauses = rows_of_source(self.target, self.source, self.pairs, updating, self.missing)
            return [new_rows(self.target, frame, clauses)]
        condition = self.statement.condition
        texts = unmatched(self.source, condition, items(self.target, self.missing))
        return [new_rows(self.target, self.near.query(*texts, read_for=condition), self.missing)]

    def _write(self, frames: Sequence[DataFrame]) -> list[ManifestEntry]:
        if not frames:
            return []
        whole = functools.reduce(DataFrame.union, frames)
        return write_frame(self.target.context, self.target.table, self.target.state, whole)


def _rows(files: Sequence[ManifestEntry]) -> int:
    return sum(e.file.row_count for e in files)
