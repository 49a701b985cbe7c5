"""What each condition of a scan was worth to it: how many rows the indexes of its column left, file by file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bitlake.errors import BitlakeError
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import And, Constant, Predicate, columns_of, conjuncts
from bitlake.fileindex.reader import FileIndexReader
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.scan.index_location import has_index
from bitlake.scan.index_reader import open_file_index
from bitlake.scan.plan import Plan, StepName
from bitlake.schema.evolution import map_fields, map_predicate

MOST_FILES = 400
"""Files whose indexes are asked again, condition by condition."""


@dataclass(frozen=True, slots=True)
class LeafStep:
    """What one condition did, over the files that were looked at.

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
    """Which indexes were asked about a condition, in words."""
    if not step.files:
        return "no file: merged by key"
    return ", ".join(step.indexes) or "no index"


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
    terms = [t for t in conjuncts(plan.predicate) if not isinstance(t, Constant) and not columns_of(t) <= keys]
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
    found, rows = Selection.all(), file.entry.file.row_count
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
        left = [k for k in kinds if not any(s.startswith(f"{k}:") for s in unused)]
        before = found.count(rows)
        if index is not None and left:
            found = found & index.evaluate(mapped)
        after = found.count(rows)
        out.append(
            replace(
                step,
                indexes=tuple(dict.fromkeys((*step.indexes, *left))),
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
