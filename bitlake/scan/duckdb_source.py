"""A scan as a DuckDB source: rows with more information than an Arrow dataset gives.

DuckDB estimates one row for a dataset and orders joins by that; a source gives the number of rows.  A dataset must
apply the filters that DuckDB pushes, with a copy of the rows; a source may decline a filter, and then DuckDB applies it
in all its threads, without copies.  A source may also have columns of text as codes of a dictionary, as files store
them, which DuckDB groups and compares by code, and decimals of 64 bits instead of 128.

CPU, TPC-H at scale 1 ÷ DuckDB over the same files, geometric mean of 22 queries: datasets 2.7, sources 1.7.

:class:`ScanSource` is for queries whose WHERE bitlake has taken apart, :class:`SourceDataset` for a dataset that users
register.  The protocol is not public in DuckDB (module ``duckdb._sources``): datasets are bound where the import fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from duckdb._sources.arrow import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary, Untranslatable, exact_value
from duckdb._sources.to_arrow import to_arrow

from bitlake.errors import BitlakeError
from bitlake.expressions import tree
from bitlake.expressions.arrow_expression import decode, implied
from bitlake.expressions.binder import all_of, any_of, bind
from bitlake.expressions.tree import Comparison, Op, Predicate, computed_tests, conjuncts, sources_of
from bitlake.formats.conform import retyped
from bitlake.formats.parquet.decode import coded_columns
from bitlake.scan.column_reader import footer_of, has_pages
from bitlake.scan.dataset import ScanDataset
from bitlake.scan.reader import compact_schema, tasks_of
from bitlake.scan.scan import TableScan
from bitlake.types import AtomicType, Root

_BATCH_ROWS = 131_072
_COMPARISONS = {"=": Op.EQ, "!=": Op.NE, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}


class ScanSource(ArrowScanSource):
    """The rows of a scan; unless ``exact``, possibly others: the text of the query then keeps the scan's condition."""

    schema_is_stable = True

    def __init__(self, scan: TableScan, takes: Callable[[TableScan, Predicate], bool], exact: bool = False) -> None:
        """``takes``: whether a filter that can be applied here exactly is to be."""
        super().__init__(scan)
        self._scan = scan
        self._takes = takes
        self._exact = exact and scan.predicate is not None
        self._is_plain = type(scan) is TableScan and scan.row_limit is None
        self._compact = _compact_columns(scan) if self._is_plain else frozenset()
        self._schema = compact_schema(scan.schema, self._compact)

    def rows(self) -> int | None:
        """The most rows that the scan can return; None if only reading can tell."""
        try:
            return self._scan.plan().chosen_rows if self._is_plain else None
        except BitlakeError:
            return None  # reading reports it

    def accepts(self, predicate: Node) -> bool:
        """Whether a filter is applied here; else DuckDB applies it, in all its threads."""
        scan = self._scan
        if scan.row_limit is not None:
            return False  # the limit comes first
        term = _predicate(predicate, scan)
        return term is not None and self._takes(scan, term)

    def __arrow_c_schema__(self) -> object:
        """The scan's schema, with the types that files store."""
        return self._schema.__arrow_c_schema__()

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """A stream of these columns by number, None for all, with filters that :meth:`accepts` took applied."""
        scan = self._scan
        names = scan.columns if columns is None else [scan.columns[i] for i in columns]
        if self._is_plain and not filters and not self._exact:
            return scan.candidates(names, self._compact).__arrow_c_stream__(), columns is not None
        terms = [_predicate(predicate, scan) for predicate in filters]
        filtered = scan.where_bound(all_of(t for t in terms if t is not None)) if terms else scan
        reader = replace(filtered.select(names), checks_text=True).to_reader(_BATCH_ROWS)
        declared = compact_schema(reader.schema, self._compact)
        if not declared.equals(reader.schema):
            reader = pa.RecordBatchReader.from_batches(declared, _retyped_batches(reader, declared))
        return reader.__arrow_c_stream__(), columns is not None


def no_filter(scan: TableScan, term: Predicate) -> bool:
    """Take no filter: the scan's plan has only some of the files."""
    return False


def join_keys(scan: TableScan, term: Predicate) -> bool:
    """Take equalities of columns that the scan has no condition on, as of a join: the query's WHERE is in the scan."""
    judged = frozenset() if scan.predicate is None else sources_of(scan.predicate)
    return any(_is_equality(t) and judged.isdisjoint(sources_of(t)) for t in conjuncts(term))


def what_prunes(scan: TableScan, term: Predicate) -> bool:
    """Take filters by which the plan reads fewer rows: to apply one to rows that are read costs DuckDB less."""
    try:
        return scan.apart().where_bound(term).plan().chosen_rows < scan.plan().chosen_rows
    except BitlakeError:
        return False  # reading reports it


class SourceDataset(ScanDataset, ArrowScanSource):
    """A dataset that DuckDB reads as a :class:`ScanSource`, and everyone else as an Arrow dataset.

    DuckDB takes any object for a source that is one; it registers, and finds by name, only Arrow's own classes.
    """

    schema_is_stable = True

    def __init__(self, scan: TableScan) -> None:
        ScanDataset.__init__(self, scan)
        self._source = ScanSource(scan, what_prunes, exact=True)

    def __reduce__(self) -> tuple[Any, ...]:
        # Where it is sent, DuckDB may be missing.
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
        case Binary(op="AND" | "OR" as op, left=left, right=right):
            sides = [_predicate(side, scan, negated) for side in (left, right)]
            known = [side for side in sides if side is not None]
            join = all_of if (op == "AND") != negated else any_of
            return join(known) if len(known) == 2 else None
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


def _is_float(scan: TableScan, name: str) -> bool:
    kinds = [f.type for f in scan.state.schema.fields if f.name == name]
    return any(isinstance(k, AtomicType) and k.root in (Root.FLOAT, Root.DOUBLE) for k in kinds)


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
