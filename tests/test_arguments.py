"""Arguments of another type than a method takes: one kind of error, and the table stays as it is."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bitlake
from bitlake import arguments
from bitlake.engine.procedures import PROCEDURES
from bitlake.errors import BitlakeError, InvalidRequest

ROWS = pa.table({"p": ["a", "b"], "k": [1, 2], "v": [2.5, None]})
WRONG = [
    None,
    3,
    -1,
    True,
    1.5,
    float("nan"),
    "x",
    "",
    b"x",
    [],
    [None],
    [3],
    {},
    {"x": 1},
    {1: 2},
    object(),
    ("a", "b"),
]
GIVEN = {
    "name": "t",
    "columns": ["k"],
    "column": "k",
    "rows": ROWS,
    "schema": ROWS.schema,
    "condition": "k = 1",
    "order_by": ["k"],
    "n": 1,
    "aggregates": {"k": "sum"},
    "start": 1,
    "snapshot_id": 1,
    "buckets": 2,
}
"""The arguments beside the wrong one; `x` where nothing else is named."""
UNUSED = {"explain", "explanation", "merge", "read", "read_stream", "report", "to_spark", "write_stream"}
"""Methods that start Spark or write to a given path, and methods whose arguments other tests cover."""


def made(root: Path) -> bitlake.Lake:
    lake = bitlake.connect(root)
    lake.create_table("t", ROWS, primary_key=["k"], options={"bucket": 1})
    lake.create_table("a", ROWS)
    return lake


def places(lake: bitlake.Lake) -> Iterator[tuple[str, Any]]:
    yield "lake", lake
    for name in ("t", "a"):
        table = lake.table(name)
        yield name, table
        yield f"{name}.indexes", table.indexes
        yield f"{name}.history", table.history
        yield f"{name}.maintenance", table.maintenance
        yield f"{name}.scan()", table.scan()


def wrong_calls(method: Callable[..., Any], name: str) -> Iterator[dict[str, Any]]:
    """Each argument in turn with each wrong value, beside right ones."""
    parameters = [
        p for p in inspect.signature(method).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    for wrong in parameters:
        for value in WRONG:
            named = {p.name: GIVEN.get(p.name, "x") for p in parameters if p.default is p.empty}
            if name == "sql":
                named["engine"] = "duckdb"
            yield named | {wrong.name: value}


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", range(11))
def test_every_method_refuses_wrong_arguments_with_its_own_error(place: int, tmp_path: Path) -> None:
    lake = made(tmp_path / "first")
    label, owner = list(places(lake))[place]
    methods = [n for n in dir(owner) if not n.startswith("_") and n not in UNUSED and callable(getattr(owner, n))]
    calls = 0
    for name in methods:
        lake = made(tmp_path / name)
        method = getattr(dict(places(lake))[label], name)
        for named in wrong_calls(method, name):
            calls += 1
            with contextlib.suppress(BitlakeError):
                result = method(**named)
                if isinstance(result, Iterator):
                    list(result)
    assert calls > 50


LITERALS = ["NULL", "3", "-1", "0", "TRUE", "1.5", "''", "' '", "'x'", "'1'", "'k=1'", "'9999999999999999999'"]
LITERALS += ["9999999999999999999", "-9223372036854775808", "DATE '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00'"]
LITERALS += ["array(1)", "map('a', 'b')", "X'00'", "'t'", "'default.t$snapshots'", "'../x'", "'2024-01-01'"]
WRITTEN = {"table": "'default.t'", "tag": "'v'", "branch": "'b'", "timestamp": "'2024-01-01 00:00:00'"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_every_procedure_refuses_wrong_literals_with_its_own_error(name: str, tmp_path: Path) -> None:
    lake = made(tmp_path)
    lake.table("t").history.create_tag("v")
    for wrong in PROCEDURES[name].parameters:
        for literal in LITERALS:
            given = {p.name: WRITTEN.get(p.name, "'x'") for p in PROCEDURES[name].parameters if p.required}
            named = ", ".join(f"{k} => {v}" for k, v in (given | {wrong.name: literal}).items())
            with contextlib.suppress(BitlakeError):
                lake.sql(f"CALL sys.{name}({named})", engine="duckdb")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lake, t: lake.table(None), "a table name must be text, and is None"),
        (lambda lake, t: lake.create_database(3), "a database name must be text, and is 3"),
        (lambda lake, t: lake.sql(None, engine="duckdb"), "a statement must be text, and is None"),
        (lambda lake, t: lake.create_table("n", ROWS, comment=3), "comment must be text, and is 3"),
        (
            lambda lake, t: lake.create_table("n", ROWS, options=["bucket"]),
            r"options must be a dict, and is \['bucket'\]",
        ),
        (lambda lake, t: lake.create_table("n", ROWS, options={"bucket": None}), "option 'bucket' must be text"),
        (lambda lake, t: t.scan(snapshot="1"), "snapshot must be a whole number, and is '1'"),
        (lambda lake, t: t.scan(tag=1), "tag must be text, and is 1"),
        (lambda lake, t: t.scan(incremental_between=1), "incremental_between must be a pair of snapshots or tags"),
        (lambda lake, t: t.scan(mode="diff"), "mode 'diff' needs incremental_between"),
        (lambda lake, t: t.update("v = 1"), "UPDATE: values must be a dict, and is 'v = 1'"),
        (lambda lake, t: t.upsert(ROWS, kinds=3), "kinds must be an array or a column's name, and is 3"),
        (lambda lake, t: t.add_column("n", None), "invalid data type None; expected an Arrow type"),
        (lambda lake, t: t.history.create_tag(None), "a tag name must be text, and is None"),
        (lambda lake, t: t.history.rollback(tag=3), "tag must be text, and is 3|a tag name must be text, and is 3"),
        (lambda lake, t: t.history.fast_forward(None), "a branch name must be text, and is None"),
        (lambda lake, t: t.indexes.create("k", None), "an index type must be text, and is None"),
        (lambda lake, t: t.maintenance.expire_snapshots(retain_max="1"), "retain_max must be a whole number"),
        (lambda lake, t: t.maintenance.expire_partitions(7), r"invalid older_than 7; expected a timedelta"),
        (
            lambda lake, t: t.maintenance.repair_earliest_snapshot(-(2**63)),
            "cannot begin with snapshot -9223372036854775808",
        ),
        (lambda lake, t: t.maintenance.repair("x"), r"report must be a result of verify\(\), and is 'x'"),
        (lambda lake, t: t.scan().top_n(None, 1), "order_by must be a list of columns, and is None"),
        (lambda lake, t: t.scan().top_n([("k",)], 1), r"cannot order by \('k',\); expected"),
    ],
)
def test_the_error_names_the_argument(call: Any, message: str, tmp_path: Path) -> None:
    lake = made(tmp_path)
    with pytest.raises(InvalidRequest, match=message):
        call(lake, lake.table("t"))
    assert lake.tables() == ["a", "t"] and lake.table("t").count() == 2


def test_text_is_unicode() -> None:
    """A lone surrogate stands for a byte of a command line that is not UTF-8; no file format and no server takes it."""
    assert arguments.text("a name", "é日本😀") == "é日本😀"
    with pytest.raises(InvalidRequest, match="a name must be valid Unicode, and has bytes that are not UTF-8"):
        arguments.text("a name", "caf\udce9")


def test_what_people_write_is_taken(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    table = lake.create_table(
        "t", ROWS, primary_key=["k"], partition_by=None, options={"bucket": 2, "write-only": True}
    )
    assert table.schema.options == {"bucket": "2", "write-only": "true"} and not table.schema.partition_keys
    assert table.alter_options({"write-only": False, "snapshot.num-retained.max": 20}).options == {
        "bucket": "2",
        "write-only": "false",
        "snapshot.num-retained.max": "20",
    }
    schema = table.indexes.create("v", "bloom-filter", {"fpp": 0.02, "items": 1000})
    assert {v for k, v in schema.options.items() if k.startswith("file-index.bloom-filter.v.")} == {"0.02", "1000"}
    assert table.scan().top_n("k", 1).to_arrow()["k"].to_pylist() == [1]
    assert arguments.whole("n", ROWS["k"].to_numpy()[0]) == 1


NAMES = [np.array, pd.Series, pd.Index, pl.Series, tuple, iter, dict.fromkeys]
"""Names as libraries and Python hold them."""


@pytest.mark.parametrize("names", NAMES)
def test_lists_of_names_are_of_any_type(names: Callable[[list[str]], Any], tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    rows = pa.table({"p": ["a", "b"], "k": [1, 2], "v": [2.5, None]})
    table = lake.create_table("t", rows, primary_key=names(["p", "k"]), partition_by=names(["p"]))
    assert table.schema.primary_keys == ("p", "k") and table.schema.partition_keys == ("p",)
    assert table.scan(columns=names(["v", "k"])).to_arrow().column_names == ["v", "k"]
    assert table.scan().top_n(names(["k"]), 1).to_arrow()["k"].to_pylist() == [1]
    assert table.alter_options({"a.b": 1, "a.c": 2}, unset=names(["a.c"])).options == {"a.b": "1"}
    assert table.alter(drop=names(["v"])).field_names == ("p", "k")
    assert lake.write(rows, "n", partition_by=names(["p"])) == 2
    assert table.indexes.advise(names(["k = 1"])).table == "default.t"
    with pytest.raises(InvalidRequest, match="partition"):
        lake.write(rows, "n", partition_by=names(["p"]))


def test_a_member_of_a_struct_is_dropped_by_its_path(tmp_path: Path) -> None:
    struct = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    table = bitlake.connect(tmp_path).create_table("t", pa.schema([("s", struct)]))
    assert str(table.alter(drop=[("s", "x")]).fields[0].type) == "ROW<`y` INT>"


def test_numbers_of_numpy_are_taken(tmp_path: Path) -> None:
    lake, two = bitlake.connect(tmp_path), np.int64(2)
    table = lake.create_table("t", ROWS, options={"read.batch-size": two, "write-only": np.True_, "x": np.float32(0.5)})
    assert table.schema.options == {"read.batch-size": "2", "write-only": "true", "x": "0.5"}
    table.append(ROWS)
    for pair in ((np.int64(1), two), np.array([1, 2]), range(1, 3)):
        assert table.scan(incremental_between=pair).to_arrow().num_rows == 2
    table.history.reset_consumer("c", two)
    assert table.history.consumers() == {"c": 2}
    assert table.history.rollback(np.int64(1)) == (2, 1)
    with pytest.raises(InvalidRequest, match="limit must be a whole number"):
        table.scan(limit=np.array([1, 2]))
