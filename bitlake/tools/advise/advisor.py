"""Advise on a table: read a sample, take the queries, try indexes on the sample, choose.

Two passes over the sample, both through a runner: profiles of all columns, each column of a run read once; then indexes
on the columns that queries use are built and evaluated (:mod:`bitlake.tools.advise.trial`).  After the advice is
applied, the queries run again and their bytes are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bitlake import arguments
from bitlake.errors import InvalidRequest, reading_table
from bitlake.expressions.tree import IndexedExpression, Predicate, leaves_of
from bitlake.file_store_table import FileStoreTable
from bitlake.fileindex.registry import usable_indexes
from bitlake.mergetree.rescale import rescale
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.progress import job
from bitlake.runtime import Runner
from bitlake.scan import reader
from bitlake.scan.column_reader import ReadCounts, has_pages
from bitlake.scan.index_pruning import forget_indexes
from bitlake.scan.scan import TableScan
from bitlake.system_tables.files import FILE_INDEXES
from bitlake.tools.advise import policy
from bitlake.tools.advise.advice import (
    Advice,
    Measured,
    MeasuredIndex,
    MeasuredLayout,
    MeasuredQuestion,
    QuestionEstimate,
)
from bitlake.tools.advise.estimate import (
    ENGINES,
    Estimator,
    FilePages,
    Looked,
    by_spark,
)
from bitlake.tools.advise.layout import LayoutAdvice, advise_buckets, advise_pages, advise_sort
from bitlake.tools.advise.questions import (
    Asked,
    ColumnProfile,
    Query,
    Question,
    RunProfile,
    assumed,
    choose_runs,
    given,
    not_understood,
    profile_run,
    unite,
    units_of,
)
from bitlake.tools.advise.sources import places_of, source_field, text_column
from bitlake.tools.advise.trial import Trial, try_run
from bitlake.tools.report.facts import index_facts
from bitlake.tools.scan_log import ScanRecord, scan_log_of
from bitlake.types import DataField
from bitlake.types.datatypes import is_scalar

_MOST_QUESTIONS = 40
_MOST_OTHERS = 8
_SORTED = ("sort", "zorder")


def measure(
    table: FileStoreTable, advice: Advice, sql: Callable[[str], Any] | None = None, layout: bool = False
) -> Measured:
    """Carry advice on indexes out, and with ``layout`` that on how rows lie, and say what it brought."""
    if layout and sql is None and any(item.kind in _SORTED for item in advice.layout):
        raise InvalidRequest(f"table '{table.name}': rows are sorted by Spark: advice.apply(lake.sql, layout=True)")
    questions = _chosen(advice.questions)
    before = [bytes_of(table, q.question, advice.engine) for q in questions]
    started = time.perf_counter()
    if sql is not None:
        for statement in advice.statements():
            sql(statement)
    elif advice.statements():
        if advice.set_options or advice.unset_options:
            table.alter_options(advice.set_options, advice.unset_options)
        table.rebuild_indexes()
    seconds = time.perf_counter() - started if advice.statements() else 0.0
    after = [bytes_of(table, q.question, advice.engine) for q in questions]
    real = index_sizes(table)
    return Measured(
        tuple(
            MeasuredIndex(c.column, c.index, new.index_bytes, real.get((c.column, c.index), 0))
            for c in advice.columns
            if (new := c.to_build) is not None
        ),
        tuple(
            MeasuredQuestion(
                q.question.text,
                q.question.weight,
                tuple(sorted(q.question.sources)),
                q.before,
                was,
                q.after,
                now,
            )
            for q, was, now in zip(questions, before, after, strict=True)
        ),
        advice.build_seconds,
        seconds,
        tuple(_lay_out(table, item, advice.engine, sql) for item in advice.layout) if layout else (),
    )


def _lay_out(
    table: FileStoreTable, item: LayoutAdvice, engine: str, sql: Callable[[str], Any] | None
) -> MeasuredLayout:
    """Do one advice on how rows lie, and ask its questions before and after."""
    is_sorted = item.kind in _SORTED
    before = _mean_bytes(table, item.questions, engine) if is_sorted else None
    started = time.perf_counter()
    if sql is not None:
        for statement in item.statements:
            sql(statement)
    elif item.kind == "bucket":
        with job(f"rescaling {table.name}", table.shows_progress):
            rescale(table, int(item.value))
    else:
        table.alter_options({opt.PARQUET_PAGE_ROWS.name: item.value})
    seconds = time.perf_counter() - started
    after = _mean_bytes(table, item.questions, engine) if is_sorted else None
    expected = (item.bytes_before, item.bytes_after) if is_sorted else (None, None)
    return MeasuredLayout(item.kind, item.value, expected[0], before, expected[1], after, seconds)


def _mean_bytes(table: FileStoreTable, questions: Sequence[Question], engine: str) -> float:
    weight = sum(q.weight for q in questions) or 1.0
    return sum(q.weight * bytes_of(table, q, engine) for q in questions) / weight


def _chosen(questions: Sequence[QuestionEstimate]) -> list[QuestionEstimate]:
    """Those that should change, evenly over all of them, and some of the others."""
    changed = [q for q in questions if q.before != q.after]
    others = sorted((q for q in questions if q.before == q.after), key=lambda q: -q.question.weight)
    step = max(1, -(-len(changed) // _MOST_QUESTIONS))
    return changed[::step] + others[:_MOST_OTHERS]


def bytes_of(table: FileStoreTable, question: Question, engine: str) -> int:
    """Return the bytes of data files and indexes that a question reads, with no index in memory.

    What Spark's own reader would read is added up from the file's footer; all else is read here, and counted.
    """
    forget_indexes(table.store)
    scan = table.scan_of(table.state()).select(question.columns).where_bound(question.predicate)
    plan = scan.plan()
    metrics = plan.metrics
    few = plan.chosen_rows <= reader.DRIVER_ROWS and len(plan.files) <= reader.DRIVER_FILES
    picked = any(not f.whole for f in plan.files)
    size = sum(f.entry.file.file_size * f.chosen_rows / max(f.row_count, 1) for f in plan.files)
    few = few and size <= (reader.DRIVER_BYTES if picked else reader.WHOLE_DRIVER_BYTES)
    if engine == "python" or not plan.files or few:
        for _ in scan.to_batches():
            pass
        return metrics.data_bytes_read + metrics.index_bytes_read
    request = reader.ReadRequest(scan.state.schema, scan.columns, plan.predicate, table.timezone)
    counts = ReadCounts()
    for file, task in zip(plan.files, reader.tasks_of(plan.files, plan.schemas), strict=True):
        sparse = file.chosen_rows <= file.row_count * reader.SELECTIVE_SHARE and not file.by_pages
        if sparse or file.merge is not None or file.deleted or not has_pages(task):
            for _ in reader.read_file(table.store, task, request, counts):
                pass
        else:
            counts.add(bytes=round(by_spark(FilePages(table.store, task, scan.state.schema), question)))
    return counts.bytes + metrics.index_bytes_read


def index_sizes(table: FileStoreTable) -> dict[tuple[str, str], int]:
    """Bytes of the indexes of all live files, by column and kind."""
    rows = FILE_INDEXES.table(table.state()).select(["column_name", "index_type", "bytes"])
    sizes: dict[tuple[str, str], int] = {}
    for column, kind, size in zip(*(c.to_pylist() for c in rows.columns), strict=True):
        if size is not None:
            sizes[column, kind] = sizes.get((column, kind), 0) + size
    return sizes


SAMPLE_ROWS = 500_000
RECORDED = "recorded"

Given = Sequence[str | Predicate | Query | ScanRecord]


def advise(
    table: FileStoreTable, queries: Given | str | None, sample: int | None, runner: Runner, engine: str
) -> Advice:
    """See :meth:`bitlake.table.indexes.TableIndexes.advise`."""
    started = time.perf_counter()
    sample = SAMPLE_ROWS if sample is None else sample
    if arguments.whole("sample", sample) < 1:
        raise InvalidRequest(f"table '{table.name}': a sample has at least one row, not {sample}")
    if engine not in ENGINES:
        raise InvalidRequest(f"table '{table.name}': queries run on {' or '.join(ENGINES)}, not '{engine}'")
    asked, where = _asked(table, queries)
    advice = advise_on(table.scan_of(table.state()), asked, where, sample, runner, engine, started)
    return replace(advice, _apply=partial(measure, table))


def advise_on(
    scan: TableScan, asked: Asked | None, where: str, sample: int, runner: Runner, engine: str, started: float
) -> Advice:
    """Advise on what a scan of a whole table reads; the advice cannot be applied."""
    with reading_table(scan.state.name):
        return _Advisor(scan, asked, where, runner, engine).advise(sample, started)


def _asked(table: FileStoreTable, queries: Given | str | None) -> tuple[Asked | None, str]:
    if queries is None:
        return None, "typical questions"
    schema = table.schema
    if isinstance(queries, str) and queries == RECORDED:
        return given(scan_log_of(table).read(None), schema, table.timezone), "recorded scans"
    queries = arguments.listed(f"table '{table.name}': queries", queries, f"conditions (or '{RECORDED}')")
    where = "recorded scans" if queries and all(isinstance(q, ScanRecord) for q in queries) else "queries"
    return given(queries, schema, table.timezone), where


@dataclass(slots=True)
class _Advisor:
    scan: TableScan
    asked: Asked | None
    where: str
    runner: Runner
    engine: str

    def advise(self, sample: int, started: float) -> Advice:
        schema = self.scan.state.schema
        files = policy.data_files(self.scan.plan().files)
        rows = sum(f.row_count for f in files)
        fields = self._fields(schema)
        runs = choose_runs(files, self.scan.plan().schemas, sample, len(fields))
        profiled = self.runner.run(runs, partial(profile_run, self.scan.store, fields=fields, schema=schema))
        columns = {
            f.name: unite(f.name, [p[f.name] for p in profiled if f.name in p], rows)
            for f in fields
            if any(f.name in p for p in profiled)
        }
        questions = self._questions(schema, columns)
        now = _indexes_now(schema)
        coverage, _, _ = index_facts(self.scan.state, [f.entry for f in files])
        built = {(i.column, i.kind) for i in coverage if i.files > policy.BUILT * len(files)}
        before = {c: i for c, kinds in now.items() for i in reversed(kinds) if (c, i.index_type) in built}
        questions_by_source = _by_source(questions)
        tried = {
            f.name: self._candidates(f, columns, profiled, questions_by_source.get(f.name, ()), now) for f in fields
        }
        units = list(dict.fromkeys(unit for q in questions for unit in units_of(q.judged)))
        candidates = [c for all_ in tried.values() for c in all_]
        trials: list[Trial] = self.runner.run(
            runs, partial(try_run, self.scan.store, units=units, candidates=candidates, schema=schema)
        )
        looked = [Looked(r, p, t) for r, p, t in zip(runs, profiled, trials, strict=True)]
        estimator = Estimator(self.scan, files, looked, columns, self.engine)
        advised = self._advised(estimator, tried, questions_by_source, now, before, built)
        after = _after(before, advised)
        options, unset = policy.option_changes(schema.options, advised, schema.fields)
        name = self.scan.state.name
        found = [
            advise_sort(estimator, questions, after, name, self.asked is None),
            advise_buckets(estimator, name),
            advise_pages(estimator, questions, after, name),
        ]
        return Advice(
            table=name,
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
            notes=tuple(self._notes(policy.unbuilt(coverage, len(files)), len(files))),
        )

    # --- what is looked at --------------------------------------------------------------------------------------------

    def _fields(self, schema: TableSchema) -> list[DataField]:
        """The columns to look at: those that questions are about, where questions are given."""
        profiled = [f for f in schema.fields if is_scalar(f.type) and f.name not in schema.partition_keys]
        if self.asked is None:
            return profiled
        named = {c for q in self.asked.questions for c in q.sources} | set(self.asked.masked)
        return [*(f for f in profiled if f.name in named), *self._expressions()]

    def _expressions(self) -> list[DataField]:
        """The expressions that given questions are about."""
        named = {c for q in ([] if self.asked is None else self.asked.questions) for c in q.sources}
        return [source_field(c) for c in sorted(named) if isinstance(c, IndexedExpression)]

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
        asked: Sequence[Question],
        now: Mapping[str, Sequence[policy.Candidate]],
    ) -> list[policy.Candidate]:
        profile = columns.get(field.name)
        if profile is None or not asked:
            return []
        most = max(p[field.name].distinct for p in profiled if field.name in p)
        current = list(now.get(field.name, ()))
        kinds = {c.index_type for c in current}
        tests_text = any(text_column(leaf) == field.name for q in asked for leaf in leaves_of(q.judged))
        candidates = policy.candidates_of(field, profile, most, tests_text=tests_text)
        return current + [c for c in candidates if c.index_type not in kinds]

    # --- what is chosen -----------------------------------------------------------------------------------------------

    def _advised(
        self,
        estimator: Estimator,
        tried: Mapping[str, Sequence[policy.Candidate]],
        questions_by_source: Mapping[str, Sequence[Question]],
        now: Mapping[str, Sequence[policy.Candidate]],
        before: Mapping[str, policy.Candidate],
        built: Collection[tuple[str, str]],
    ) -> list[policy.ColumnAdvice]:
        """Advice for each column and expression.

        Of two new indexes that evaluate the same tests, the one that saves less must save enough beside the other.
        """

        def advice(field: DataField, present: Mapping[str, policy.Candidate]) -> policy.ColumnAdvice:
            name = field.name
            asked = questions_by_source.get(name, ())
            return self._column(field, estimator, tried.get(name, []), asked, now.get(name, []), present, built)

        fields = [*self.scan.state.schema.fields, *self._expressions()]
        advised = [advice(f, before) for f in fields]
        rival_sources = _rival_sources(questions_by_source)
        rivals = [_rival(a, advised, rival_sources) for a in advised]
        return [
            advice(f, {**before, **rival}) if rival else alone
            for f, alone, rival in zip(fields, advised, rivals, strict=True)
        ]

    def _column(
        self,
        field: DataField,
        estimator: Estimator,
        candidates: Sequence[policy.Candidate],
        asked: Sequence[Question],
        declared: Sequence[policy.Candidate],
        present: Mapping[str, policy.Candidate],
        built: Collection[tuple[str, str]],
    ) -> policy.ColumnAdvice:
        # A column's own index is compared with none; one on a further column must save more than those already there.
        others = {} if field.name in present else present
        trial = policy.ColumnTrial(
            field=field,
            profile=estimator.columns.get(field.name),
            questions=asked,
            given=self.asked is not None,
            tried=[estimator.estimate(c, asked, others) for c in candidates],
            declared=[c.index_type for c in declared],
            built=[kind for column, kind in built if column == field.name],
            table_bytes=estimator.table_bytes,
            merged_share=estimator.merged_share,
        )
        return policy.recommend(trial, self.scan.state.schema)

    def _notes(self, lacking: Sequence[policy.IndexFacts], files: int) -> list[str]:
        notes = [
            f"{policy.lacking_words(i, files)}: {policy.rebuild_call(self.scan.state.name)} builds it" for i in lacking
        ]
        if self.asked is not None:
            notes += [not_understood(text) for text in self.asked.unread[:10]]
            if len(self.asked.unread) > 10:
                notes.append(f"… and {len(self.asked.unread) - 10:,} more queries")
            if self.asked.whole:
                notes.append(f"no index helps queries without a condition on the table: {self.asked.whole:,} of them")
            if self.asked.masked:
                notes.append("values of recorded scans are masked: typical ones are taken instead")
            if not self.asked.questions and not self.asked.masked:
                notes.append("no query has a condition on this table's columns")
        return notes


def _indexes_now(schema: TableSchema) -> dict[str, list[policy.Candidate]]:
    indexes: dict[str, list[policy.Candidate]] = {}
    for spec in usable_indexes(schema.options, schema.fields):
        if spec.column in schema.field_names or isinstance(spec.column, IndexedExpression):
            candidate = policy.Candidate(spec.column, spec.index_type, tuple(sorted(spec.options.items())))
            indexes.setdefault(spec.column, []).append(candidate)
    return indexes


def _by_source(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """The questions about each column and expression, in order."""
    by_source: dict[str, list[Question]] = {}
    for question in questions:
        for source in question.sources:
            by_source.setdefault(source, []).append(question)
    return by_source


def _rival_sources(questions_by_source: Mapping[str, Sequence[Question]]) -> set[frozenset[str]]:
    """Pairs of sources, each with an index that can evaluate the same test."""
    leaves = {leaf for questions in questions_by_source.values() for q in questions for leaf in leaves_of(q.judged)}
    return {frozenset(places) for leaf in leaves if len(places := places_of(leaf)) > 1}


def _rival(
    advice: policy.ColumnAdvice, advised: Sequence[policy.ColumnAdvice], rival_sources: Collection[frozenset[str]]
) -> dict[str, policy.Candidate]:
    """The new index that saves more and evaluates some of the same tests, by its column; empty if there is none."""
    if advice.to_build is None or not rival_sources:
        return {}
    saved = advice.to_build.bytes_saved
    for other in advised:
        better = other.to_build is not None and (other.to_build.bytes_saved, other.column) > (saved, advice.column)
        if better and frozenset((other.column, advice.column)) in rival_sources:
            assert other.to_build is not None
            return {
                other.column: policy.Candidate(other.column, other.to_build.index_type, other.to_build.options),
            }
    return {}


def _after(
    before: Mapping[str, policy.Candidate], advised: Sequence[policy.ColumnAdvice]
) -> dict[str, policy.Candidate]:
    layout = dict(before)
    for a in advised:
        if a.action == "drop":
            layout.pop(a.column, None)
        elif (new := a.to_build) is not None:
            layout[a.column] = policy.Candidate(a.column, new.index_type, new.options)
    return layout
