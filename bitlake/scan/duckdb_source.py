"""A scan as a DuckDB source: rows with more information than an Arrow dataset gives.

DuckDB estimates one row for a dataset and orders joins by that; a source gives the number of rows.  A dataset must
apply the filters that DuckDB pushes, with a copy of the rows; a source may decline a filter, and then DuckDB applies it
in all its threads, without copies.  A source may also have columns of text as codes of a dictionary, as files store
them, which DuckDB groups and compares by code, and decimals of 64 bits instead of 128.

CPU, TPC-H at scale 1 ÷ DuckDB over the same files, geometric mean of 22 queries: datasets 2.7, sources 1.3 to 1.4.

:class:`ScanSource` is for queries whose WHERE bitlake has taken apart, :class:`SourceDataset` for a dataset that users
register.  The protocol is not public in DuckDB (module ``duckdb._sources``): if the import fails, plain Arrow datasets
are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from duckdb._sources.arrow import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary, Untranslatable, exact_value
from duckdb._sources.to_arrow import to_arrow

from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions import tree
from bitlake.expressions.arrow_expression import decode, implied
from bitlake.expressions.binder import all_of, any_of, bind
from bitlake.expressions.tree import Comparison, Op, Predicate, computed_tests, conjuncts, sources_of
from bitlake.formats.conform import retyped
from bitlake.formats.parquet.decode import coded_columns
from bitlake.runtime import Recorder
from bitlake.scan.column_reader import footer_of, has_pages
from bitlake.scan.dataset import ScanDataset
from bitlake.scan.plan import Plan
from bitlake.scan.reader import compact_schema, tasks_of
from bitlake.scan.scan import TableScan

_BATCH_ROWS = 131_072
_COMPARISONS = {"=": Op.EQ, "!=": Op.NE, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}


class ScanSource(ArrowScanSource):
    """The rows of a scan.

    Unless ``exact``, rows that do not match may be among them, and the query must repeat the scan's condition.
    """

    schema_is_stable = True

    def __init__(self, scan: TableScan, takes: Callable[[ScanSource, Predicate], bool], exact: bool = False) -> None:
        """``takes`` decides whether a filter that can be applied exactly is applied here."""
        super().__init__(scan)
        self.scan = scan
        self._takes = takes
        self._must_filter = exact and scan.predicate is not None
        self._is_plain = type(scan) is TableScan and scan.row_limit is None
        self._declined: dict[Predicate, None] = {}
        """Filters that DuckDB applies to the rows of the next stream, for the log of scans."""

    # Found when DuckDB asks: a dataset that others read is not planned by making it.

    @cached_property
    def compact(self) -> frozenset[str]:
        """Columns that come in other types than the scan's: as codes, or as narrow decimals."""
        return _compact_columns(self.scan) if self._is_plain else frozenset()

    @cached_property
    def _schema(self) -> pa.Schema:
        return compact_schema(self.scan.schema, self.compact)

    def rows(self) -> int | None:
        """An upper bound of the number of rows; None if only reading can tell."""
        try:
            return self.scan.plan().chosen_rows if self._is_plain else None
        except BitlakeError:
            return None  # reading reports it

    def accepts(self, predicate: Node) -> bool:
        """Whether a filter is applied here; else DuckDB applies it, in all its threads."""
        if self.scan.row_limit is not None:
            return False  # the limit comes first
        try:
            term = _predicate(predicate, self.scan)
            taken = term is not None and self._takes(self, term)
        except RecursionError:
            return False  # a deep tree; DuckDB needs no stack for it
        if term is not None and not taken and self.scan._recorder is not None:
            self._declined[term] = None
        return taken

    def _recorder(self) -> Recorder | None:
        """The scan's recorder, for a stream whose rows DuckDB filters further."""
        declined, self._declined = tuple(self._declined), {}
        recorder = self.scan._recorder
        return recorder if recorder is None or not declined else _QueryRecorder(recorder, declined)

    def __arrow_c_schema__(self) -> object:
        """The scan's schema, with the types of :attr:`compact` columns."""
        return self._schema.__arrow_c_schema__()

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """A stream of these columns by number, None for all, with filters that :meth:`accepts` took applied."""
        names = self.scan.columns if columns is None else [self.scan.columns[i] for i in columns]
        scan = replace(self.scan, _recorder=self._recorder())
        if self._is_plain and not filters and not self._must_filter:
            return scan.candidates(names, self.compact).__arrow_c_stream__(), columns is not None
        for predicate in filters:
            term = _predicate(predicate, scan)
            if term is None:
                raise InvalidRequest(f"table '{scan.state.name}': cannot apply the filter {predicate.fragment()} again")
            scan = scan.where_bound(term)
        reader = replace(scan.select(names), checks_text=True).to_reader(_BATCH_ROWS)
        declared = compact_schema(reader.schema, self.compact)
        if not declared.equals(reader.schema):
            reader = pa.RecordBatchReader.from_batches(declared, _retyped_batches(reader, declared))
        return reader.__arrow_c_stream__(), columns is not None


@dataclass(frozen=True, slots=True)
class _QueryRecorder:
    """Records scans with the conditions that DuckDB applies to their rows: an index may serve these."""

    recorder: Recorder
    declined: tuple[Predicate, ...]

    def add(self, plan: Plan, paths: Any, store: Any, *, engine: str = "python", was_read: bool = True) -> None:
        """As :meth:`bitlake.runtime.Recorder.add`."""
        terms = self.declined if plan.predicate is None else (plan.predicate, *self.declined)
        self.recorder.add(replace(plan, predicate=all_of(terms)), paths, store, engine=engine, was_read=was_read)

    def flush(self) -> None:
        """As :meth:`bitlake.runtime.Recorder.flush`."""
        self.recorder.flush()

    def log_of(self, table: str, paths: Any, store: Any) -> Any:
        """As :meth:`bitlake.runtime.Recorder.log_of`."""
        return self.recorder.log_of(table, paths, store)


def take_none(source: ScanSource, term: Predicate) -> bool:
    """Take no filter: the scan's plan has only some of the files."""
    return False


def take_join_keys(source: ScanSource, term: Predicate) -> bool:
    """Take equalities on columns that the scan has no condition on, such as those derived from a join.

    The query's WHERE is in the scan already.
    """
    judged = frozenset() if source.scan.predicate is None else sources_of(source.scan.predicate)
    return any(_is_equality(t) and judged.isdisjoint(sources_of(t)) for t in conjuncts(term))


def take_selective(source: ScanSource, term: Predicate) -> bool:
    """Take filters by which the plan reads fewer rows, and equalities on columns that are not stored as codes.

    Of few rows that match, the other columns' pages are not read.  Filtering rows that are read anyway is cheaper in
    DuckDB.
    """
    coded = {name for name in source.compact if source.scan.schema.field(name).type == pa.string()}
    if any(_is_equality(t) and coded.isdisjoint(sources_of(t)) for t in conjuncts(term)):
        return True
    try:
        return source.scan.where_bound(term).plan().chosen_rows < source.scan.plan().chosen_rows
    except BitlakeError:
        return False  # reading reports it


class SourceDataset(ScanDataset, ArrowScanSource):
    """A dataset that DuckDB reads as a :class:`ScanSource`, and everyone else as an Arrow dataset.

    DuckDB reads an instance of its ``Source`` as it is, but registers, and finds by name, only instances of Arrow's
    classes: hence both base classes.  ``__arrow_c_schema__`` is for DuckDB; :meth:`scanner` returns :attr:`schema`.
    """

    schema_is_stable = True

    def __init__(self, scan: TableScan) -> None:
        ScanDataset.__init__(self, scan)
        self._source = ScanSource(scan, take_selective, exact=True)

    def __reduce__(self) -> tuple[Any, ...]:
        # DuckDB may be missing where it is unpickled.
        return ScanDataset, super().__reduce__()[1]

    def filter(self, expression: pc.Expression) -> ScanDataset:
        """As :meth:`ScanDataset.filter`; a source again if the scan applies the whole expression."""
        scan, residual = self._narrowed(expression)
        return SourceDataset(scan) if residual is None else ScanDataset(scan, residual)

    def rows(self) -> int | None:
        """As :meth:`ScanSource.rows`."""
        return self._source.rows()

    def accepts(self, predicate: Node) -> bool:
        """As :meth:`ScanSource.accepts`."""
        return self._source.accepts(predicate)

    def __arrow_c_schema__(self) -> object:
        """As :meth:`ScanSource.__arrow_c_schema__`."""
        return self._source.__arrow_c_schema__()

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """As :meth:`ScanSource.stream`."""
        return self._source.stream(columns, filters)


# --- filters ----------------------------------------------------------------------------------------------------------


def _predicate(node: Node, scan: TableScan, negated: bool = False) -> Predicate | None:
    """A filter of DuckDB's, or its negation, as a bound predicate that is TRUE for the same rows; None if none is.

    In DuckDB as in Spark, NaN equals itself and is the largest number, and zeros of both signs are equal.
    """
    match node:
        case Binary(op="AND" | "OR" as op):
            terms = [_predicate(operand, scan, negated) for operand in _operands(node, op)]
            known = [term for term in terms if term is not None]
            join = all_of if (op == "AND") != negated else any_of
            return join(known) if len(known) == len(terms) else None
        case Unary(op="NOT", operand=operand):
            return _predicate(operand, scan, not negated)
        case Binary(op=op, left=Col(parts=(name,)), right=Lit() as constant) if _is_float(scan, name):
            compared = _COMPARISONS[op]
            leaf = Comparison(name, compared.negated if negated else compared, constant.value)
            return _bound(leaf, [constant], scan)
        case In(operand=Col(parts=(name,)), values=values) if _is_float(scan, name):
            constants = [v for v in values if isinstance(v, Lit)]
            member = tree.In(name, tuple(c.value for c in constants), negated)
            return _bound(member, constants, scan) if len(constants) == len(values) else None
        case Binary() | In() | Postfix():
            try:
                condition = decode(to_arrow(Unary("NOT", node) if negated else node, scan.schema))
            except (Untranslatable, BitlakeError):
                return None
            term, exact = implied(condition, scan.state.schema.fields, scan.timezone)
            return term if exact else None
    return None


def _operands(node: Node, op: str) -> list[Node]:
    """Return the operands of AND or OR; DuckDB's trees have a level for each operand."""
    operands: list[Node] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Binary) and current.op == op:
            pending += (current.right, current.left)
        else:
            operands.append(current)
    return operands


def _is_float(scan: TableScan, name: str) -> bool:
    return bool(pa.types.is_floating(scan.schema.field(name).type))


def _bound(leaf: Predicate, constants: Sequence[Lit], scan: TableScan) -> Predicate | None:
    if not all(exact_value(c) for c in constants):
        return None  # NaN or an infinity
    try:
        return bind(leaf, scan.state.schema.fields, scan.timezone)
    except BitlakeError:
        return None


def _is_equality(term: Predicate) -> bool:
    return (isinstance(term, Comparison) and term.op is Op.EQ) or (isinstance(term, tree.In) and not term.negated)


# --- types ------------------------------------------------------------------------------------------------------------


def _retyped_batches(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield from retyped(pa.Table.from_batches([batch]), schema).to_batches()


def _compact_columns(scan: TableScan) -> frozenset[str]:
    """Decimals of up to 18 digits, and text that the largest file stores as codes; that of other files gets codes."""
    judged: frozenset[str] = frozenset()
    if scan.predicate is not None:  # computed conditions take plain values
        judged = frozenset(name for test in computed_tests(scan.predicate) for name in test.columns)
    fields = [f for f in scan.schema if f.name not in judged]
    decimals = {f.name for f in fields if pa.types.is_decimal128(f.type) and f.type.precision <= 18}
    text = {f.name for f in fields if f.type == pa.string()}
    try:
        plan = scan.plan()
        files = [f for f in plan.files if f.merge is None]
        if not files:
            return frozenset()
        (task,) = tasks_of([max(files, key=lambda f: f.row_count)], plan.schemas)
        if not has_pages(task):
            return frozenset()
        stored = {f.id: f.name for f in task.file_schema.fields}
        names = {stored[f.id]: f.name for f in scan.state.schema.fields if f.name in text and f.id in stored}
        coded = coded_columns(footer_of(scan.store, task).metadata, list(names)) if names else []
    except BitlakeError:
        return frozenset()  # reading reports it
    return frozenset((*decimals, *(names[n] for n in coded)))
