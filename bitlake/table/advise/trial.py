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
from bitlake.table.advise.sample import Run, read_column
from bitlake.table.evolution import map_fields
from bitlake.table.fetch import footer_of, has_pages, stored_bytes
from bitlake.types import DataField, arrow_type

_BATCH = 128 * 1024


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
    """An index of a run: its bytes, the run's distinct values of its column, seconds of building, answers by leaf."""

    size: int
    seconds: float
    answers: Mapping[Leaf, Answer]


@dataclass(frozen=True, slots=True)
class Trial:
    """What a run's rows and indexes tell; ``matches``: where each leaf is TRUE, counted from the run's start."""

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
        started = time.perf_counter()
        column = read_column(store, run, field, schema)
        seconds[name] = time.perf_counter() - started
        if column is None:
            column = pa.nulls(run.rows, arrow_type(field.type))
        table = pa.table({name: column})
        for leaf in asked:
            true = evaluate(leaf, table, schema.fields).fill_null(False).to_numpy(zero_copy_only=False)
            matches[leaf] = BitMap(np.flatnonzero(true).astype(np.uint32))
        weight = _stored(store, run, field, schema, column)
        for candidate in candidates:
            if candidate.column == name:
                made = _build(candidate, table, asked, matches, run, schema, weight)
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


def _build(
    candidate: Candidate,
    table: pa.Table,
    leaves: Sequence[Leaf],
    matches: Mapping[Leaf, BitMap],
    run: Run,
    schema: TableSchema,
    weight: int,
) -> Built | None:
    started = time.perf_counter()
    try:
        builder = IndexBuilder([candidate.spec], schema.fields)
        for batch in table.to_batches(_BATCH):
            # Files' texts come to builders as dictionaries; what that takes is part of building.
            builder.add(pa.table({n: _as_read(c) for n, c in zip(batch.schema.names, batch.columns, strict=True)}))
        payloads = builder.payloads()
    except BitlakeError:
        return None
    spent = time.perf_counter() - started
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


def _as_read(column: pa.Array) -> pa.Array:
    return column.dictionary_encode() if pa.types.is_string(column.type) else column


def _rows(selection: Selection, rows: int) -> BitMap:
    if selection.rows is not None:
        return selection.rows
    return BitMap() if selection.is_empty else BitMap(range(rows))


def selection_of(trial: Trial, answer: Answer, leaf: Leaf) -> Selection:
    """What an index says of a leaf."""
    return Selection.of(trial.matches[leaf], True) if answer.same else answer.selection
