"""Rows as plain values, so that answers of Paimon, Spark and Arrow can be compared."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def expected_value(value: Any) -> Any:
    """A value of ``expected.json`` as :func:`plain` gives it."""
    if isinstance(value, list):
        return [expected_value(v) for v in value]
    if not isinstance(value, dict):
        return plain(value)
    ((kind, inner),) = value.items()
    if kind == "$decimal":
        return decimal.Decimal(inner)
    if kind == "$date":
        return dt.date.fromisoformat(inner)
    if kind == "$timestamp":
        return dt.datetime.fromisoformat(inner).replace(tzinfo=None)
    if kind == "$binary":
        return base64.b64decode(inner)
    if kind == "$float":
        return plain(float(inner))
    if kind == "$map":
        return {"$map": sorted(([expected_value(k), expected_value(v)] for k, v in inner), key=repr)}
    raise AssertionError(f"unknown kind of value {kind}")


def plain(value: Any) -> Any:
    """Any engine's value: rows and structs as lists, maps as sorted pairs, timestamps without zone, NaN as text."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, dict):
        return {"$map": sorted(([plain(k), plain(v)] for k, v in value.items()), key=repr)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def rows_of(frame: Any) -> list[list[Any]]:
    """The rows of a Spark DataFrame."""
    return [plain(list(row)) for row in frame.collect()]


def check_sql(lake: Any, queries: Iterable[dict[str, Any]]) -> None:
    """Each {sql, rows} of ``expected.json`` asked through ``lake.sql``; without ORDER BY, in any order."""
    for query in queries:
        found = rows_of(lake.sql(query["sql"]))
        wanted = [expected_value(r) for r in query["rows"]]
        if "ORDER BY" not in query["sql"]:
            found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
        assert found == wanted, f"{query['sql']}: {found} and not {wanted}"


def arrow_rows(table: Any) -> list[list[Any]]:
    """The rows of an Arrow table; its types tell structs from maps."""
    columns = [[_arrow_value(v, f.type) for v in table.column(i).to_pylist()] for i, f in enumerate(table.schema)]
    return [list(row) for row in zip(*columns, strict=True)]


def _arrow_value(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return [_arrow_value(v, kind.field(i).type) for i, v in enumerate(value.values())]
    if pa.types.is_map(kind):
        pairs = [[_arrow_value(k, kind.key_type), _arrow_value(v, kind.item_type)] for k, v in value]
        return {"$map": sorted(pairs, key=repr)}
    if pa.types.is_list(kind):
        return [_arrow_value(v, kind.value_type) for v in value]
    return plain(value)
