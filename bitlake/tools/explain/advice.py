"""The effect of each condition's indexes on a scan, by file, and the index that would have helped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.errors import BitlakeError
from bitlake.expressions.sql_text import name, quote, to_sql
from bitlake.expressions.tree import (
    And,
    Constant,
    Predicate,
    all_of,
    columns_of,
    conjuncts,
    has_computed,
    leaves_of,
    sources_of,
)
from bitlake.fileindex.reader import FileIndexReader
from bitlake.fileindex.selection import Selection
from bitlake.formatting import counted, human_bytes
from bitlake.io import Store
from bitlake.metadata.manifest import ManifestEntry, has_index
from bitlake.metadata.schema import TableSchema
from bitlake.runtime import LocalRunner
from bitlake.scan.index_pruning import open_file_index
from bitlake.scan.plan import Plan, StepName
from bitlake.scan.scan import TableScan
from bitlake.schema.evolution import map_fields, map_predicate
from bitlake.tools.advise import policy
from bitlake.tools.scan_log import condition_text

# --- what each condition's indexes did --------------------------------------------------------------------------------

MOST_FILES = 400
"""The number of files whose indexes are evaluated again for each condition."""


@dataclass(frozen=True, slots=True)
class LeafStep:
    """The effect of one condition over the files that were examined.

    ``condition``: a top-level AND term as SQL.  ``indexes``: which were asked about it, as ``bitmap(status)``.
    ``rows_before`` and ``rows_after``: rows that could match before its indexes were asked, and after.  ``files``:
    whose rows those are; ``files_without``: those of them without an index of its columns; ``files_emptied``: in which
    no row was left.  ``not_asked``: why existing indexes were not used, with the number of files.
    """

    condition: str
    columns: tuple[str, ...]
    indexes: tuple[str, ...] = ()
    files: int = 0
    files_without: int = 0
    files_emptied: int = 0
    rows_before: int = 0
    rows_after: int = 0
    not_asked: tuple[tuple[str, int], ...] = ()


def asked_of(step: LeafStep) -> str:
    """Describe the indexes that were read for a condition."""
    if not step.files:
        return "no file: merged by key, or skipped before"
    if step.indexes:
        return ", ".join(step.indexes)
    return "no index" if step.files_without == step.files else "no index that can answer it"


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file whose indexes a plan asked about a predicate, and the indexes that it did not read."""

    entry: ManifestEntry
    path: str
    predicate: Predicate
    unused_indexes: tuple[str, ...] = ()


def leaf_steps(plan: Plan, store: Store, use_index: bool) -> tuple[list[LeafStep], int]:
    """Ask the indexes again, one condition after the other; returns the steps and how many files were left out.

    What the plan opened is still cached, so that little is read.
    """
    if plan.predicate is None or not use_index:
        return [], 0
    files = _indexed_files(plan)
    # What speaks of partitions alone was decided by them: whole files have one value.
    keys = frozenset(plan.schema.partition_keys)
    # What is computed, no index judges.
    judged = (t for t in conjuncts(plan.predicate) if not isinstance(t, Constant) and not has_computed(t))
    terms = [t for t in judged if not columns_of(t) <= keys]
    steps = [LeafStep(to_sql(t, plan.schema.fields), tuple(sorted(columns_of(t)))) for t in terms]
    for file in files[:MOST_FILES]:
        steps = _file(steps, terms, file, plan, store)
    return steps, max(0, len(files) - MOST_FILES)


def _indexed_files(plan: Plan) -> list[IndexedFile]:
    out = []
    assert plan.predicate is not None
    for file in plan.files:
        if file.merge is not None:
            found = file.merge.files if file.merge.predicate is not None else ()
            out += [IndexedFile(f.entry, f.path, file.merge.predicate or And(()), f.unused_indexes) for f in found]
        else:
            out.append(IndexedFile(file.entry, file.path, plan.predicate, file.unused_indexes))
    for step in plan.steps:
        if step.name is StepName.INDEXES:
            out += [IndexedFile(f.entry, f.path, plan.predicate) for f in step.skipped]
    return out


def _file(
    steps: list[LeafStep], terms: Sequence[Predicate], file: IndexedFile, plan: Plan, store: Store
) -> list[LeafStep]:
    schema = plan.schemas.get(file.entry.file.schema_id, plan.schema)
    index = _open(file, schema, store)
    held: Mapping[str, Mapping[str, object]] = {} if index is None else index.columns
    selection, rows = Selection.all(), file.entry.file.row_count
    mapping = map_fields(plan.schema.fields, schema.fields)
    wanted = conjuncts(file.predicate)
    out = []
    for step, term in zip(steps, terms, strict=True):
        if term not in wanted:  # of files that are merged, only conditions on the key count
            out.append(step)
            continue
        mapped = map_predicate(term, plan.schema.fields, mapping).predicate
        columns = columns_of(mapped)
        kinds = [f"{kind}({c})" for c in sorted(columns) for kind in held.get(c, ())]
        unused = [s for s in file.unused_indexes if s.split(":", 1)[0] in kinds]
        skipped = {s.split(":", 1)[0] for s in unused}
        before, used = selection.count(rows), list[str]()
        if index is not None and len(skipped) < len(kinds):
            evaluated = index.evaluate_at_cost(mapped, None)
            selection = selection & evaluated.selection
            used = [k for k in evaluated.used if k not in skipped]
        after = selection.count(rows)
        out.append(
            replace(
                step,
                indexes=tuple(dict.fromkeys((*step.indexes, *used))),
                files=step.files + 1,
                files_without=step.files_without + (not kinds),
                files_emptied=step.files_emptied + (before > 0 and after == 0),
                rows_before=step.rows_before + before,
                rows_after=step.rows_after + after,
                not_asked=_counted(step.not_asked, unused),
            )
        )
    return out


def _open(file: IndexedFile, schema: TableSchema, store: Store) -> FileIndexReader | None:
    if not has_index(file.entry.file):
        return None
    try:
        return open_file_index(store, file.path, file.entry.file, schema)
    except BitlakeError:
        return None  # the plan's warnings say so


def _counted(known: tuple[tuple[str, int], ...], more: Sequence[str]) -> tuple[tuple[str, int], ...]:
    counts = dict(known)
    for why in more:
        counts[why] = counts.get(why, 0) + 1
    return tuple(counts.items())


# --- which index would have helped ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Advice:
    """An index that would have helped: for which condition, why, and the statements to run.

    If the scan was read, a trial measured the index: ``bytes`` are those it saves, and the statements build it.
    Otherwise ``index`` is the type to try first, ``bytes`` are those of the columns to read, and the statement runs the
    advisor.  ``files``: those left to read.
    """

    column: str
    index: str
    condition: str
    why: str
    files: int
    bytes: int
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.index} on {self.column}: {self.why}"


def advice_of(scan: TableScan, plan: Plan, steps: Sequence[LeafStep], left: int, was_read: bool) -> list[Advice]:
    """Return the indexes that would have helped a scan, by :mod:`bitlake.tools.advise.policy`; most bytes first.

    ``left``: bytes of the pages to read.  A scan that was read is followed by a trial on a sample of the table's rows.
    """
    predicate, m = plan.predicate, plan.metrics
    if predicate is None or not plan.files:
        return []
    cost = policy.ScanCost(
        m.data_bytes_read + m.index_bytes_read if was_read else left,
        m.rows_chosen,
        sum(f.row_count for f in plan.files),
        m.rows_returned if was_read else None,
    )
    judged = all_of([t for t in conjuncts(predicate) if not has_computed(t)])  # what an index can help with
    columns = policy.indexable(plan.schema, sorted(sources_of(judged)), plan.files)
    if not columns or not policy.could_save(cost):
        return []
    advice = _tried(scan, plan, judged) if was_read else _untried(plan, judged, columns, steps, left)
    return sorted(advice, key=lambda a: -a.bytes)


def _tried(scan: TableScan, plan: Plan, predicate: Predicate) -> Iterator[Advice]:
    """Return the advisor's recommendation for this condition alone."""
    # Imported lazily: loading the advisor takes 60 ms, which explanations of scans that were not read do without.
    from bitlake.tools.advise import advisor, questions  # brings the whole advisor, which few plans need

    whole = replace(scan, columns=tuple(plan.schema.field_names), predicate=None, row_limit=None, order=(), _planned=[])
    question = questions.question_of(predicate, plan.columns, 1.0, plan.schema)
    asked, started = questions.Asked((question,)), time.perf_counter()
    advised = advisor.advise_on(whole, asked, "queries", advisor.SAMPLE_ROWS, LocalRunner(), "python", started)
    for column in advised.columns:
        if column.to_build is not None:
            changes = policy.option_changes(plan.schema.options, [column], plan.schema.fields)
            yield Advice(
                column.column,
                column.index,
                _condition(plan, predicate, column.column),
                column.reason,
                len(plan.files),
                round(column.to_build.bytes_saved),
                tuple(policy.statements(plan.table, [column], *changes)),
            )


def _untried(
    plan: Plan, predicate: Predicate, columns: Sequence[str], steps: Sequence[LeafStep], left: int
) -> Iterator[Advice]:
    """The columns that conditions judge without an index; which index helps them, only a trial can tell."""
    where = condition_text(predicate, plan.schema.fields)
    argument = "recorded => true"
    if where is not None:
        listed = ", ".join(map(name, plan.columns)) or "1"
        argument = f"queries => {quote(f'SELECT {listed} FROM {policy.sql_name(plan.table)} WHERE {where}')}"
    for column in columns:
        of_column = [s for s in steps if column in s.columns]
        if any(s.files_without == 0 and s.indexes for s in of_column):
            continue
        leaves = [leaf for leaf in leaves_of(predicate) if leaf.column == column]
        index = next((i for leaf in leaves if (i := policy.first_to_try(plan.schema, leaf)) is not None), None)
        if index is None:
            continue
        lack = "files lack an index of it"
        if not any(s.files_without for s in of_column):
            lack = "no index of it answers this condition" if of_column else "no file has an index of it"
        elif all(s.files_without == s.files for s in of_column):
            lack = "no file has an index of it"
        why = f"{lack}, and statistics left {counted(len(plan.files), 'file')} to read ({human_bytes(left)} of columns)"
        yield Advice(
            column,
            index.name,
            _condition(plan, predicate, column),
            f"{why}; the advisor measures what one would save",
            len(plan.files),
            left,
            (policy.advisor_call(plan.table, argument),),
        )


def _condition(plan: Plan, predicate: Predicate, column: str) -> str:
    """The terms of a condition that are about a column, as SQL."""
    return to_sql(all_of([t for t in conjuncts(predicate) if column in sources_of(t)]), plan.schema.fields)
