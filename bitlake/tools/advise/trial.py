"""Build candidate indexes on a sample, and measure the rows they select, their size and their build time.

Nothing is guessed about an index here: it is built from the rows of a run with the writers that build those of files,
and asked by the readers that plans ask.  What is left to guess is how a file's differs from a run's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa
from pyroaring import BitMap

from bitlake.errors import BitlakeError
from bitlake.expressions.tree import Leaf, MapKey, Predicate, leaves_of
from bitlake.fileindex.capabilities import SampledRead
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.cost import SMALL_ROWS, CostPolicy, IndexQuery
from bitlake.fileindex.reader import FIRST_BYTES, open_index
from bitlake.fileindex.registry import IndexBuilder, by_entry, known_index_type
from bitlake.fileindex.selection import Selection
from bitlake.io import Store
from bitlake.metadata.schema import TableSchema
from bitlake.scan.column_reader import footer_of, has_pages, stored_bytes
from bitlake.schema.evolution import map_fields
from bitlake.tools.advise.policy import Candidate
from bitlake.tools.advise.questions import Run, read_column, read_source
from bitlake.tools.advise.sources import columns_of_source, matching_rows, places_of, source_of
from bitlake.types import DataField, arrow_type
from bitlake.write.data_file_writer import INDEX_ROWS, indexed_columns

T = TypeVar("T")
_PIECE_ROWS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """An index's answer to a leaf, or to leaves together; ``same``: exactly the rows that match.

    Of the bytes that it read, ``once`` are read of a file's index too, however many rows that has; ``growing`` are
    bitmaps, which have as many more bytes as the file has rows.
    """

    selection: Selection
    once: int
    growing: int
    same: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """An index of a run: its payload's bytes, the processor seconds to build it, and answers by leaf or leaves.

    ``fixed``: the bytes of its payload that grow with the distinct values, not with the rows.
    """

    size: int
    seconds: float
    answers: Mapping[Predicate, Answer]
    fixed: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """A run's rows and trial indexes; ``matches``: where each leaf is TRUE, counted from the run's start.

    ``read_seconds``: what reading each indexed column takes, as it is read to be indexed.
    """

    matches: Mapping[Leaf, BitMap]
    built: Mapping[Candidate, Built]
    read_seconds: Mapping[str, float]


def try_run(
    store: Store, run: Run, units: Sequence[Predicate], candidates: Sequence[Candidate], schema: TableSchema
) -> Trial:
    """Build the candidates of a run and evaluate the queries of their columns, each of ``units`` of one column."""
    matches: dict[Leaf, BitMap] = {}
    distinct = dict.fromkeys(leaf for unit in units for leaf in leaves_of(unit))
    leaves = _grouped((source_of(leaf), leaf) for leaf in distinct)
    for source, tests in leaves.items():
        values = read_source(store, run, source, schema)
        if values is None and source in schema.field_names:
            values = pa.nulls(run.rows, arrow_type(schema.field(source).type))
        for leaf in tests:
            matches[leaf] = BitMap() if values is None else matching_rows(leaf, source, values, schema.fields)
    built: dict[Candidate, Built] = {}
    seconds: dict[str, float] = {}
    asked = _grouped((place, unit) for unit in units for place in places_of(unit))
    for source, rivals in _grouped((c.column, c) for c in candidates).items():
        if source not in asked:
            continue
        seconds[source], weight, batches = _as_indexed(store, run, source, schema)
        for candidate in rivals:
            made = _build(candidate, batches, asked[source], matches, run, schema, weight)
            if made is not None:
                built[candidate] = made
    return Trial(matches, built, seconds)


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """The second members by the first, in order."""
    out: dict[str, list[T]] = {}
    for source, member in pairs:
        out.setdefault(source, []).append(member)
    return out


def _as_indexed(store: Store, run: Run, source: str, schema: TableSchema) -> tuple[float, int, list[pa.Table]]:
    """The seconds that reading a source's columns takes, the bytes they have in the file, and their batches."""
    seconds, weight = 0.0, 0
    columns: dict[str, list[pa.Array]] = {}
    for name in columns_of_source(source):
        field = schema.field(name)
        column = read_column(store, run, field, schema)
        if column is None:
            column = pa.nulls(run.rows, arrow_type(field.type))
        took, coded = _read_as_indexed(store, run, field, schema)
        parts = [b.column(0) for b in pa.table({name: column}).to_batches(INDEX_ROWS)]
        columns[name] = [p.dictionary_encode() if coded else p for p in parts]
        seconds, weight = seconds + took, weight + _stored(store, run, field, schema, column)
    batches = [pa.table(dict(zip(columns, parts, strict=True))) for parts in zip(*columns.values(), strict=True)]
    return seconds, weight, batches


def _stored(store: Store, run: Run, field: DataField, schema: TableSchema, column: pa.Array) -> int:
    """About how many bytes a column takes in a run's file."""
    source = map_fields(schema.fields, run.task.file_schema.fields).fields[field.name]
    if source is None or not has_pages(run.task):
        return int(column.nbytes * run.scale)
    footer = footer_of(store, run.task)
    return stored_bytes(footer, [source.name], range(len(footer.row_groups)))


def _read_as_indexed(store: Store, run: Run, field: DataField, schema: TableSchema) -> tuple[float, bool]:
    """Return the seconds it takes to read a run's rows of a column for indexing: as a stream, from the file's start.

    Also return whether the column is dictionary-encoded.  The seconds are this thread's processor time, which excludes
    other work on the machine; for files that are not local, or not decoded here, they are elapsed time.
    """
    source = map_fields(schema.fields, run.task.file_schema.fields).fields[field.name]
    if source is None:
        return 0.0, False
    is_local = store.local_path(run.task.path) is not None and has_pages(run.task)
    clock = time.thread_time if is_local else time.perf_counter
    rows = first = 0
    coded = False
    began = ended = started = clock()
    fields = run.task.file_schema.fields
    for batch in indexed_columns(
        store, run.task.path, [source.name], fields, batch_rows=_PIECE_ROWS, use_threads=False
    ):
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
    units: Sequence[Predicate],
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
    content = encode_container(by_entry({candidate.column: {candidate.index_type: payload}}), checksums=True)
    # Indexes of small files are read without a cost estimate; so are those of a run that represents one.
    index_type = known_index_type(candidate.index_type)
    fixed = index_type.fixed_bytes(payload)
    length = fixed + max(0, len(payload) - fixed) * run.scale
    policy = None if run.task.row_count < SMALL_ROWS else _FilePolicy(run, weight, round(length))
    answers = {}
    for unit in units:
        leaves = leaves_of(unit)
        if any(isinstance(leaf.column, MapKey) for leaf in leaves):
            continue
        index = open_index(lambda at, n: content[at : at + n], len(content), schema.fields, run.rows)
        selection = index.evaluate_at_cost(unit, policy).selection
        true = BitMap.intersection(*(matches[leaf] for leaf in leaves))
        read = index.bytes_read
        decided = selection.is_empty or selection.rows is not None
        sampled = SampledRead(leaves, [matches[leaf] for leaf in leaves], read, max(0, read - FIRST_BYTES), decided)
        grows, most = index_type.growing_read(payload, sampled)
        if most is not None and grows * run.scale > most and policy is not None:
            selection, grows, read = (
                Selection.all(),
                0,
                min(read, FIRST_BYTES),
            )  # the file's index would not evaluate it
        same = selection.exact and _rows(selection, run.rows) == true
        answers[unit] = Answer(Selection.all() if same else selection, read - grows, grows, same)
    return Built(len(payload), spent, answers, fixed)


class _FilePolicy:
    """Decides whether the index of a run's whole file would be read, where that of the run is at hand."""

    def __init__(self, run: Run, column_bytes: int, length: int) -> None:
        self._scale, self._length = run.scale, length
        self._policy = CostPolicy(run.task.row_count, lambda _: column_bytes, exact=False)

    def reason_to_skip(self, reader: object, query: IndexQuery) -> str | None:
        """See :class:`bitlake.fileindex.cost.ReadPolicy`; rows are those of the run alone, and so are left out."""
        left = round(query.left * self._scale)
        return self._policy.reason_to_skip(reader, replace(query, length=self._length, left=left, rows=None))


def _rows(selection: Selection, rows: int) -> BitMap:
    if selection.rows is not None:
        return selection.rows
    return BitMap() if selection.is_empty else BitMap(range(rows))


def selection_of(trial: Trial, answer: Answer, unit: Predicate) -> Selection:
    """Return an index's selection for a leaf, or for leaves together."""
    if not answer.same:
        return answer.selection
    return Selection.of(BitMap.intersection(*(trial.matches[leaf] for leaf in leaves_of(unit))), True)
