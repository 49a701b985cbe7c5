"""A scan as a Polars LazyFrame: columns, conditions and row limits of a query are pushed into the scan.

Polars gives a source its predicate as an expression, and shows the expression's tree as JSON.  Parts that Arrow's
expressions have as well become those (:mod:`bitlake.expressions.arrow_expression`), which prune; Polars filters what
the scan yields by the whole predicate.  A part that is not understood, or that another version of Polars writes in
another form, only prunes less.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.arrow_expression import Call, Field, Literal, Node, implied
from bitlake.lazy_modules import install_command
from bitlake.scan.scan import TableScan

if TYPE_CHECKING:
    import polars as pl

_OPERATORS = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
    "And": "and_kleene",
    "LogicalAnd": "and_kleene",
    "Or": "or_kleene",
    "LogicalOr": "or_kleene",
}
_BOUNDS = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_AFFIXES = {"StartsWith": "starts_with", "EndsWith": "ends_with"}
_EMIT_NULL = 2
"""``is_in`` of NULL is NULL in Polars, as with this setting in Arrow."""


def lazy_frame(scan: TableScan) -> pl.LazyFrame:
    """A LazyFrame over a scan's rows."""
    polars = _polars()
    from polars.io.plugins import register_io_source

    schema = polars.from_arrow(scan.schema.empty_table()).schema

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        narrowed = scan if predicate is None else _narrowed(scan, predicate)
        if with_columns is not None:
            narrowed = narrowed.select([c for c in scan.columns if c in with_columns] or scan.columns[:1])
        limited = n_rows if scan.row_limit is None or n_rows is None else min(n_rows, scan.row_limit)
        if limited is not None and predicate is None and not scan.order:
            narrowed = narrowed.limit(limited)
        left = n_rows
        for batch in replace(narrowed, checks_text=True).to_batches(batch_size):
            frame = polars.from_arrow(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if with_columns is not None:
                # Without columns, select() forgets the number of rows, which may be all that the query needs.
                frame = frame.select(with_columns) if with_columns else frame.drop(frame.columns)
            yield frame
            if left == 0:
                return

    return register_io_source(source, schema=schema, is_pure=True)


def data_frame(scan: TableScan) -> pl.DataFrame:
    """A scan's rows as a DataFrame."""
    frame: pl.DataFrame = _polars().from_arrow(replace(scan, checks_text=True).to_arrow())
    return frame


def _polars() -> Any:
    try:
        import polars
    except ModuleNotFoundError as e:
        raise InvalidRequest(f"polars is not installed: `{install_command('polars')}`") from e
    return polars


def _narrowed(scan: TableScan, predicate: pl.Expr) -> TableScan:
    """The scan with what a predicate of Polars implies."""
    if scan.row_limit is not None:
        return scan  # the limit comes first
    try:
        tree = _node(json.loads(predicate.meta.serialize(format="json")))
    except (KeyError, TypeError, ValueError, IndexError, pa.ArrowException, _polars().exceptions.PolarsError):
        return scan
    # Polars compares NaN as SQL does.  Arrow's rules, which `implied` follows, select at most these rows or, where NaN
    # is the literal, are left out.
    known, _ = implied(tree, [f for f in scan.state.schema.fields if f.name in scan.columns], scan.timezone)
    return scan.where_bound(known)


def _node(tree: Any) -> Node:
    """A node of Polars' JSON; an unknown one is a call of that name, which nothing understands."""
    match tree:
        case {"Column": str(name)}:
            return Field((name,))
        case {"Literal": {"Dyn": {"Float": value}} | {"Scalar": {"Float64": value}}} if value is not None:
            return Literal(pa.scalar(value, pa.float64()))
        case {"Literal": {"Scalar": {"Float32": value}}} if value is not None:
            return Literal(pa.scalar(value, pa.float32()))
        case {"Literal": literal} | {"Cast": {"expr": {"Literal": literal}}} if not _is_float(literal):
            return Literal(_constant(tree))
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}} if op in _OPERATORS:
            return Call(_OPERATORS[op], (_node(left), _node(right)), {})
        case {"Function": {"input": [value, *rest], "function": {"Boolean": function}}}:
            return _boolean(_node(value), rest, function)
        case {"Function": {"input": [value, {"Literal": _} as text], "function": {"StringExpr": str(name)}}}:
            if name in _AFFIXES:
                options = {"pattern": pa.scalar(_constant(text).as_py()), "ignore_case": pa.scalar(False)}
                return Call(_AFFIXES[name], (_node(value),), options)
    return Call("unknown", (), {})


def _boolean(value: Node, rest: list[Any], function: Any) -> Node:
    match function, rest:
        case "Not", []:
            return Call("invert", (value,), {})
        case "IsNull", []:
            return Call("is_null", (value,), {})
        case "IsNotNull", []:
            return Call("is_valid", (value,), {})
        case "IsNan", []:
            return Call("is_nan", (value,), {})
        case {"IsBetween": {"closed": str(closed)}}, [low, high]:
            least, most = (
                Call(_OPERATORS[op], (value, _node(end)), {})
                for op, end in zip(_BOUNDS[closed], (low, high), strict=True)
            )
            return Call("and_kleene", (least, most), {})
        case {"IsIn": {"nulls_equal": False}}, [{"Literal": _} as members]:
            behaviour = pa.scalar(_EMIT_NULL, pa.uint32())
            return Call("is_in", (value,), {"value_set": _constant(members), "null_matching_behavior": behaviour})
    return Call("unknown", (), {})


def _is_float(literal: Any) -> bool:
    """Whether a literal is a float.  JSON has no NaN and infinity, and Polars reads others from it a bit off."""
    match literal:
        case {"Dyn": {"Float": _}} | {"Scalar": {"Float64": _} | {"Float32": _}}:
            return True
    return False


def _constant(tree: Any) -> pa.Scalar:
    """The value of a literal, or of a cast of one: Polars computes it."""
    polars = _polars()
    expression = polars.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
    return polars.select(expression).to_series().to_arrow()[0]
