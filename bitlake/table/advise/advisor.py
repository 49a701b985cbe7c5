"""Advice for a table: look at a sample, take the questions, try indexes on it, choose.

Two rounds over the sample, both through a runner: profiles of the columns in one pass, each column of a run read once;
then, of the columns that questions are about, indexes are built and asked (:mod:`bitlake.table.advise.trial`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bitlake.errors import InvalidRequest, reading_table
from bitlake.expressions.tree import Predicate, sources_of
from bitlake.fileindex.registry import INDEX_TYPES, parse_index_options
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import Runner
from bitlake.table.advise.advice import NOT_ASKED, Advice, ColumnAdvice, QuestionEstimate, changed_options
from bitlake.table.advise.choose import (
    LEAST_SHARE,
    IndexEstimate,
    best,
    candidates_of,
    describe,
    estimate,
    reason,
    worthwhile,
)
from bitlake.table.advise.estimate import Estimator, Looked, all_files
from bitlake.table.advise.layout import advise_buckets, advise_pages, advise_sort
from bitlake.table.advise.measure import measure
from bitlake.table.advise.profile import ColumnProfile, RunProfile, is_profiled, profile_run, unite
from bitlake.table.advise.questions import Asked, Query, Question, assumed, given, not_understood, units_of
from bitlake.table.advise.sample import Run, choose_runs
from bitlake.table.advise.trial import Candidate, Trial, try_run
from bitlake.table.advise.weigh import ENGINES
from bitlake.table.index_access import has_index
from bitlake.table.scan import Scan
from bitlake.table.scan_log import ScanRecord
from bitlake.types import DataField

if TYPE_CHECKING:
    from bitlake.table.table import Table

SAMPLE_ROWS = 500_000
RECORDED = "recorded"
_USELESS = 0.02
_MOSTLY = 0.5

Given = Sequence[str | Predicate | Query | ScanRecord]


def advise(table: Table, queries: Given | str | None, sample: int | None, runner: Runner, engine: str) -> Advice:
    """See :meth:`bitlake.table.table.Table.advise`."""
    started = time.perf_counter()
    sample = SAMPLE_ROWS if sample is None else sample
    if sample < 1:
        raise InvalidRequest(f"table '{table.name}': a sample has at least one row, not {sample}")
    if engine not in ENGINES:
        raise InvalidRequest(f"table '{table.name}': queries run on {' or '.join(ENGINES)}, not '{engine}'")
    asked, where = _asked(table, queries)
    state = table.state()
    scan = table.scan_of(state)
    with reading_table(table.name):
        return _Advisor(table, scan, asked, where, runner, engine).advise(sample, started)


def _asked(table: Table, queries: Given | str | None) -> tuple[Asked | None, str]:
    if queries is None:
        return None, "typical questions"
    schema = table.schema
    if queries == RECORDED:
        return given(table.recorded_scans(None), schema, table.timezone), "recorded scans"
    if isinstance(queries, str):
        raise InvalidRequest(f"table '{table.name}': queries are a list of conditions, or '{RECORDED}'; not text")
    where = "recorded scans" if queries and all(isinstance(q, ScanRecord) for q in queries) else "queries"
    return given(queries, schema, table.timezone), where


@dataclass(slots=True)
class _Advisor:
    table: Table
    scan: Scan
    asked: Asked | None
    where: str
    runner: Runner
    engine: str

    def advise(self, sample: int, started: float) -> Advice:
        schema = self.scan.state.schema
        files = all_files(self.scan)
        runs = choose_runs(files, self.scan.plan().schemas, sample)
        rows = sum(f.row_count for f in files)
        fields = self._fields(schema)
        profiled = self.runner.run(runs, partial(_profile, self.scan.store, fields, schema))
        columns = {
            f.name: unite(f.name, [p[f.name] for p in profiled if f.name in p], rows)
            for f in fields
            if any(f.name in p for p in profiled)
        }
        questions = self._questions(schema, columns)
        now = _indexes_now(schema)
        built = bool(files) and sum(has_index(f.entry.file) for f in files) * 2 > len(files)
        tried = {f.name: self._candidates(f, columns, profiled, questions, now) for f in fields}
        units = list(dict.fromkeys(unit for q in questions for unit in units_of(q.predicate)))
        candidates = [c for all_ in tried.values() for c in all_]
        trials: list[Trial] = self.runner.run(runs, partial(_try, self.scan.store, units, candidates, schema))
        looked = [Looked(r, p, t) for r, p, t in zip(runs, profiled, trials, strict=True)]
        estimator = Estimator(self.scan, files, looked, columns, self.engine)
        advised = [self._column(f, estimator, tried.get(f.name, []), questions, now, built) for f in schema.fields]
        before = {c: kinds[0] for c, kinds in now.items() if built and kinds}
        after = _after(before, advised)
        options, unset = changed_options(schema.options, advised, list(INDEX_TYPES))
        found = [
            advise_sort(estimator, questions, after, self.table.name, self.asked is None),
            advise_buckets(estimator, self.table.name),
            advise_pages(estimator, questions, after, self.table.name),
        ]
        return Advice(
            table=self.table.name,
            snapshot=self.scan.state.snapshot_id,
            rows=rows,
            data_bytes=estimator.table_bytes,
            files=len(files),
            sampled_rows=sum(r.rows for r in runs),
            sampled_files=len({r.task.path for r in runs}),
            seconds=time.perf_counter() - started,
            asked=self.where,
            engine=self.engine,
            columns=tuple(advised),
            layout=tuple(item for item in found if item is not None),
            questions=tuple(
                QuestionEstimate(q, estimator.weigh(q, before).total, estimator.weigh(q, after).total)
                for q in questions
            ),
            set_options=options,
            unset_options=unset,
            notes=tuple(self._notes(now, built, files != [])),
            _apply=partial(measure, self.table),
        )

    # --- what is looked at --------------------------------------------------------------------------------------------

    def _fields(self, schema: TableSchema) -> list[DataField]:
        """The columns to look at: those that questions are about, where questions are given."""
        found = [f for f in schema.fields if is_profiled(f) and f.name not in schema.partition_keys]
        if self.asked is None:
            return found
        named = {c for q in self.asked.questions for c in sources_of(q.predicate)} | set(self.asked.masked)
        return [f for f in found if f.name in named]

    def _questions(self, schema: TableSchema, columns: Mapping[str, ColumnProfile]) -> list[Question]:
        if self.asked is None:
            return [q for name, p in columns.items() for q in assumed(schema.field(name), p, schema)]
        typical = [
            replace(q, weight=q.weight * times)
            for name, times in self.asked.masked.items()
            if name in columns
            for q in assumed(schema.field(name), columns[name], schema)
        ]
        return [*self.asked.questions, *typical]

    def _candidates(
        self,
        field: DataField,
        columns: Mapping[str, ColumnProfile],
        profiled: Sequence[Mapping[str, RunProfile]],
        questions: Sequence[Question],
        now: Mapping[str, Sequence[Candidate]],
    ) -> list[Candidate]:
        profile = columns.get(field.name)
        if profile is None or not any(field.name in sources_of(q.predicate) for q in questions):
            return []
        most = max(p[field.name].distinct for p in profiled if field.name in p)
        there = list(now.get(field.name, ()))
        kinds = {c.index_type for c in there}
        return there + [c for c in candidates_of(field, profile, most) if c.index_type not in kinds]

    # --- what is chosen -----------------------------------------------------------------------------------------------

    def _column(
        self,
        field: DataField,
        estimator: Estimator,
        candidates: Sequence[Candidate],
        questions: Sequence[Question],
        now: Mapping[str, Sequence[Candidate]],
        built: bool,
    ) -> ColumnAdvice:
        there = tuple(c.index_type for c in now.get(field.name, ()))
        profile = estimator.columns.get(field.name)
        kept = "keep" if there else "none"
        simple = self._without_look(field, profile, estimator)
        if simple is not None:
            return ColumnAdvice(field.name, str(field.type), kept, there, None, simple, (), profile)
        assert profile is not None
        asked = [q for q in questions if field.name in sources_of(q.predicate)]
        tried = [estimate(estimator, c, asked) for c in candidates]
        chosen = best(tried, estimator.table_bytes)
        existing = [t for t in tried if t.index_type in there]
        words = _words(asked)
        why = reason(profile, chosen, tried, estimator.table_bytes, words)
        action = "none" if chosen is None else "add"
        if chosen is None and estimator.merged_share > _MOSTLY:
            why = (
                f"{describe(profile)}: {100 * estimator.merged_share:.0f} % of the bytes are in files merged by "
                "key, which are read whole whatever an index says; compact the table first"
            )
        if existing:
            action, chosen, why = self._beside(existing[0], chosen, why, built, estimator.table_bytes)
        elif there:
            action = "keep"
        return ColumnAdvice(field.name, str(field.type), action, there, chosen, why, tuple(tried), profile)

    def _without_look(self, field: DataField, profile: ColumnProfile | None, estimator: Estimator) -> str | None:
        """Why nothing need be tried for a column; None: it has to be."""
        if field.name in self.scan.state.schema.partition_keys:
            return "partition column: its value chooses files without an index"
        if not is_profiled(field):
            return f"values of type {str(field.type).split('<')[0].split(' ')[0]} take no index as a whole"
        if not estimator.files:
            return "the table has no rows yet"
        if profile is None:
            return NOT_ASKED if self.asked is not None else "no file has it yet"
        if profile.distinct <= 1 and not profile.nulls:
            return f"{describe(profile)}: nothing to tell rows apart by"
        return None

    def _beside(
        self, existing: IndexEstimate, chosen: IndexEstimate | None, why: str, built: bool, table_bytes: int
    ) -> tuple[str, IndexEstimate | None, str]:
        """What becomes of an index that is there: (action, the index to have, reason)."""
        late = "" if built else f"; its {existing.index_type} is asked for by the options, and not built yet"
        if chosen is None:
            saved = existing.bytes_saved / existing.bytes_before if existing.bytes_before else 0.0
            if self.asked is not None and saved < _USELESS:
                return "drop", None, f"{why}; its {existing.index_type} saves nothing"
            return "keep", existing, f"{why}; it has one, which costs nothing more{late}"
        same = chosen.index_type == existing.index_type
        if same or (worthwhile(existing, table_bytes) and existing.bytes_saved >= 0.8 * chosen.bytes_saved):
            return "keep" if built else "add", existing, why + late
        return "replace", chosen, f"{why}; its {existing.index_type} saves {_part(existing)} of the bytes"

    def _notes(self, now: Mapping[str, Sequence[Candidate]], built: bool, rows: bool) -> list[str]:
        found = []
        if now and rows and not built:
            found.append(
                "most files lack the indexes that the options ask for: CALL sys.rewrite_file_index builds them"
            )
        if self.asked is not None:
            found += [not_understood(text) for text in self.asked.unread[:10]]
            if len(self.asked.unread) > 10:
                found.append(f"… and {len(self.asked.unread) - 10:,} more queries")
            if self.asked.whole:
                found.append(f"no index helps queries without a condition on the table: {self.asked.whole:,} of them")
            if self.asked.masked:
                found.append("values of recorded scans are masked: typical ones are taken instead")
            if not self.asked.questions and not self.asked.masked:
                found.append("no query has a condition on this table's columns")
        return found


def _part(found: IndexEstimate) -> str:
    return f"{100 * (1 - found.share):.0f} %"


def _words(questions: Sequence[Question]) -> str:
    kinds = {q.kind for q in questions}
    if "several" in kinds or "pattern" in kinds or not kinds:
        return "queries"
    names = {"equality": "equality", "list": "IN", "range": "ranges", "null": "IS NULL"}
    told = [text for kind, text in names.items() if kind in kinds and (kind != "null" or kinds == {"null"})]
    if told[:2] == ["equality", "IN"]:
        told = ["equality", *told[2:]]
    return " and ".join(told)


def _indexes_now(schema: TableSchema) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for spec in parse_index_options(schema.options, schema.fields):
        if spec.column in schema.field_names:
            made = Candidate(spec.column, spec.index_type, tuple(sorted(spec.options.items())))
            found.setdefault(spec.column, []).append(made)
    return found


def _after(before: Mapping[str, Candidate], advised: Sequence[ColumnAdvice]) -> dict[str, Candidate]:
    found = dict(before)
    for a in advised:
        if a.action == "drop":
            found.pop(a.column, None)
        elif a.action in ("add", "replace") and a.chosen is not None:
            found[a.column] = Candidate(a.column, a.chosen.index_type, a.chosen.options)
    return found


def _profile(store: Store, fields: Sequence[DataField], schema: TableSchema, run: Run) -> dict[str, RunProfile]:
    return profile_run(store, run, fields, schema)


def _try(
    store: Store, units: Sequence[Predicate], candidates: Sequence[Candidate], schema: TableSchema, run: Run
) -> Trial:
    return try_run(store, run, units, candidates, schema)


__all__ = ["LEAST_SHARE", "RECORDED", "SAMPLE_ROWS", "advise"]
