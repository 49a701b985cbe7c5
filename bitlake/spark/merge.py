"""MERGE INTO append tables: which rows of the target each clause hits, then what becomes of them, in one snapshot.

First only what ON and the clauses' conditions need of the target is read, to find hits; then the columns of the rows
that are updated, and of no others.  The source is evaluated once.  Each kind of clause is a query of its own, so that
names mean what they mean in it: ``target JOIN source`` for WHEN MATCHED, ``source ANTI JOIN target`` for WHEN NOT
MATCHED, ``target ANTI JOIN source`` for WHEN NOT MATCHED BY SOURCE.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyroaring import BitMap
from pyspark.sql import DataFrame

from bitlake.errors import CommitConflict, InvalidRequest
from bitlake.metadata.manifest import ManifestEntry
from bitlake.spark.context import EngineContext
from bitlake.spark.delete import retried
from bitlake.spark.dml import write_frame
from bitlake.spark.keyed_merge import merge_keyed
from bitlake.spark.merge_clauses import Clause, Merged, action, clauses_of, items, matched_twice, new_rows, unmatched
from bitlake.spark.merge_source import Source, key_predicates, source_of
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
    with source_of(context, statement) as source:

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
    hits: dict[str, BitMap] = field(default_factory=dict)
    deleted: int = 0

    @classmethod
    def of(cls, target: Target, source: Source, statement: st.MergeInto) -> _Merge:
        near = replace(target, pushed=key_predicates(target, source, statement.condition))
        kinds = (st.When.MATCHED, st.When.NOT_MATCHED, st.When.NOT_MATCHED_BY_SOURCE)
        matched, missing, orphaned = (clauses_of(target, source, statement, kind) for kind in kinds)
        return cls(target, near, source, statement, matched, missing, orphaned)

    def run(self) -> Merged:
        """Find, write, commit."""
        state, table = self.target.state, self.target.table
        changed = [*self._updated(self.matched, self._find_matched()), *self._updated(self.orphaned, self._find_left())]
        gone = take_out(state, self.hits, SparkRunner(self.target.context.spark))
        files: list[ManifestEntry] = []
        try:
            expected = gone.rows - self.deleted
            inserted = [self._inserted()] if self.missing else []
            if changed and inserted and not self._tells_time:
                files += self._write([*changed, *inserted])
            else:
                files += self._write(changed)
                if _rows(files) != expected:
                    raise CommitConflict(
                        f"MERGE INTO '{table.name}': {expected} rows were to be updated and {_rows(files)} were; "
                        "a condition or the source gave another answer the second time"
                    )
                files += self._write(inserted)
        except BaseException:
            discard_all(state, gone, files)
            raise
        if gone.rows:
            table.commit_rows(state, gone, "MERGE", files)
        else:
            table.commit_files(state, files, "MERGE")
        return Merged(expected, self.deleted, _rows(files) - expected)

    @property
    def _tells_time(self) -> bool:
        texts = (self.statement.condition, *(c.condition or "" for c in self.statement.clauses))
        return any(_CLOCK.search(t) for t in texts)

    # --- which rows --------------------------------------------------------------------------------------------------

    def _find_matched(self) -> Gathered:
        if not self.matched:
            return Gathered()
        found = self._find(self.near, self.matched, f"JOIN {self.source.item} ON ({self.statement.condition})")
        only = self.matched[0]
        harmless = len(self.matched) == 1 and only.condition is None and only.action is st.MergeAction.DELETE
        if found.twice and not harmless:
            raise matched_twice(self.target, sum(len(rows) for rows in found.twice.values()))
        return found

    def _find_left(self) -> Gathered:
        if not self.orphaned:
            return Gathered()
        return self._find(
            self.target, self.orphaned, f"LEFT ANTI JOIN {self.source.item} ON ({self.statement.condition})"
        )

    def _find(self, target: Target, clauses: Sequence[Clause], join: str) -> Gathered:
        chosen = action(clauses)
        before = (
            f"SELECT file, position, action FROM (SELECT {self.source.hint}{target.path} AS file, "
            f"{target.index} AS position, {chosen} AS action FROM"
        )
        frame = target.query(before, f"{join}) WHERE action IS NOT NULL", positions=True)
        found = gather(frame, f"MERGE INTO '{target.table.name}'")
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
        # Rows that no source row matches are known by where they are.
        joined = clauses is self.matched
        join = f"JOIN {self.source.item} ON ({self.statement.condition})" if joined else ""
        before = f"SELECT {self.source.hint if joined else ''}{items(self.target, clauses, old=True)} FROM"
        frame = self.target.query(before, join, hits=hits, refiltered=joined)
        return [new_rows(self.target, frame, updating)]

    def _inserted(self) -> DataFrame:
        condition = self.statement.condition
        chosen = items(self.target, self.missing, old=False)
        frame = self.near.query(*unmatched(self.source, condition, chosen), read_for=condition)
        return new_rows(self.target, frame, self.missing)

    def _write(self, frames: Sequence[DataFrame]) -> list[ManifestEntry]:
        if not frames:
            return []
        whole = functools.reduce(DataFrame.union, frames)
        return write_frame(self.target.context, self.target.table, self.target.state, whole)


def _rows(files: Sequence[ManifestEntry]) -> int:
    return sum(e.file.row_count for e in files)
