"""Indexes made for a sample and asked: which rows they choose, what they weigh, and what making them takes.

Nothing is guessed about an index here: it is built from the rows of a run with the writers that build those of files,
and asked by the readers that plans ask.  What is left to guess is how a file's differs from a run's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError
from bitlake.fileindex.build import IndexBuilder
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.open import open_index
from bitlake.fileindex.registry import IndexSpec
from bitlake.fileindex.selection import Selection
from bitlake.fileindex.worth import SMALL_ROWS, CostGuide
from bitlake.metadata.schema import TableSchema
from bitlake.predicate.evaluate import evaluate
from bitlake.predicate.tree import Leaf, MapKey
from bitlake.storage import Store
from bitlake.storage.local import LocalStore
from bitlake.table.advise.sample import Run, read_column
from bitlake.table.data_file import indexed_columns
from bitlake.table.evolution import map_fields
from bitlake.table.fetch import footer_of, has_pages, stored_bytes
from bitlake.types import DataField, arrow_type

_BATCH = 128 * 1024
_PIECE = 16 * 1024


@dataclass(frozen=True, slots=True)
class Candidate:
    """An index that may be worth having."""

    column: str
    index_type: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def spec(self) -> IndexSpec:
        """What the builder takes."""
        return IndexSpec(self.column, self.index_type, dict(self.options))


@dataclass(frozen=True, slots=True)
class Answer:
    """What an index says of a leaf, and how many of its bytes that took; ``same``: just the rows that match."""

    selection: Selection
    index_bytes: int
    same: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """An index of a run: its bytes, seconds of a processor that building it took, answers by leaf."""

    size: int
    seconds: float
    answers: Mapping[Leaf, Answer]


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run's rows and indexes tell; ``matches``: where each leaf is TRUE, counted from the run's start.

    ``read_seconds``: what reading each indexed column takes, as it is read to be indexed.
    """

    matches: Mapping[Leaf, BitMap]
    built: Mapping[Candidate, Built]
    read_seconds: Mapping[str, float]


def try_run(
    store: Store, run: Run, leaves: Sequence[Leaf], candidates: Sequence[Candidate], schema: TableSchema
) -> Trial:
    """Build the candidates of a run and ask them about the leaves of their columns."""
    by_column: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        source = leaf.column.column if isinstance(leaf.column, MapKey) else leaf.column
        by_column.setdefault(source, []).append(leaf)
    matches: dict[Leaf, BitMap] = {}
    built: dict[Candidate, Built] = {}
    seconds: dict[str, float] = {}
    for name, asked in by_column.items():
        field = schema.field(name)
        column = read_column(store, run, field, schema)
        if column is None:
            column = pa.nulls(run.rows, arrow_type(field.type))
        table = pa.table({name: column})
        tried = [c for c in candidates if c.column == name]
        as_read: list[pa.Table] = []
        if tried:
            seconds[name], coded = _read_as_indexed(store, run, field, schema)
            parts = [b.column(0) for b in table.to_batches(_BATCH)]
            as_read = [pa.table({name: p.dictionary_encode() if coded else p}) for p in parts]
        for leaf in asked:
            true = evaluate(leaf, table, schema.fields).fill_null(False).to_numpy(zero_copy_only=False)
            matches[leaf] = BitMap(np.flatnonzero(true).astype(np.uint32))
        weight = _stored(store, run, field, schema, column)
        for candidate in tried:
            made = _build(candidate, as_read, asked, matches, run, schema, weight)
            if made is not None:
                built[candidate] = made
    return Trial(matches, built, seconds)


def _stored(store: Store, run: Run, field: DataField, schema: TableSchema, column: pa.Array) -> int:
    """About how many bytes a column of a run takes in its file."""
    source = map_fields(schema.fields, run.task.file_schema.fields).fields[field.name]
    if source is None or not has_pages(run.task):
        return int(column.nbytes)
    footer = footer_of(store, run.task)
    return int(stored_bytes(footer, [source.name], range(len(footer.row_groups))) / run.scale)


def _read_as_indexed(store: Store, run: Run, field: DataField, schema: TableSchema) -> tuple[float, bool]:
    """Seconds of reading a column of so many rows as it is read to be indexed: a stream, from the file's start.

    And whether it comes as codes of a dictionary.  Time of this thread, so that what else the machine does is not
    counted; of files that are not local, or not decoded here, the time that passes.
    """
    source = map_fields(schema.fields, run.task.file_schema.fields).fields[field.name]
    if source is None:
        return 0.0, False
    clock = time.thread_time if isinstance(store, LocalStore) and has_pages(run.task) else time.perf_counter
    rows = first = 0
    coded = False
    began = ended = started = clock()
    fields = run.task.file_schema.fields
    for batch in indexed_columns(store, run.task.path, [source.name], fields, batch_rows=_PIECE, use_threads=False):
        ended = clock()
        rows, coded = rows + batch.num_rows, pa.types.is_dictionary(batch.schema.field(0).type)
        if not first:
            first, began = rows, ended
        if rows >= run.rows:
            break
    if rows <= first:
        return ended - started, coded
    # The first piece came with the footer and the whole column's bytes, which a file has once.
    each = (ended - began) / (rows - first)
    once = max(0.0, began - started - each * first)
    return each * run.rows + once / run.scale, coded


def _build(
    candidate: Candidate,
    batches: Sequence[pa.Table],
    leaves: Sequence[Leaf],
    matches: Mapping[Leaf, BitMap],
    run: Run,
    schema: TableSchema,
    weight: int,
) -> Built | None:
    started = time.thread_time()
    try:
        builder = IndexBuilder([candidate.spec], schema.fields)
        for batch in batches:
            builder.add(batch)
        payloads = builder.payloads()
    except BitlakeError:
        return None
    spent = time.thread_time() - started
    payload = payloads.get(candidate.column, {}).get(candidate.index_type)
    if payload is None:
        return None
    content = encode_container({candidate.column: {candidate.index_type: payload}}, checksums=True)
    # Small files are asked without weighing; so is a run that stands for one.
    guide = None if run.task.row_count < SMALL_ROWS else CostGuide(run.rows, lambda _: weight, exact=False)
    answers = {}
    for leaf in leaves:
        if isinstance(leaf.column, MapKey):
            continue
        index = open_index(lambda at, n: content[at : at + n], len(content), schema.fields, run.rows)
        selection = index.evaluate(leaf, guide)
        same = selection.exact and _rows(selection, run.rows) == matches[leaf]
        answers[leaf] = Answer(Selection.all() if same else selection, index.bytes_read, same)
    return Built(len(content), spent, answers)


def _rows(selection: Selection, rows: int) -> BitMap:
    if selection.rows is not None:
        return selection.rows
    return BitMap() if selection.is_empty else BitMap(range(rows))


def selection_of(trial: Trial, answer: Answer, leaf: Leaf) -> Selection:
    """What an index says of a leaf."""
    return Selection.of(trial.matches[leaf], True) if answer.same else answer.selection
