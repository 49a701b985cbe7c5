"""Options that a table cannot be written with are refused when it is made or altered, not when rows come."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest, UnsupportedFeature
from bitlake.formats.file_format import CODECS

SCHEMA = pa.schema([("i", pa.int32())])
BAD = [
    ("file.compression", "lzma", "zstd, snappy"),
    ("file.compression.zstd-level", "23", "from 1 to 22"),
    ("file.compression.zstd-level", "0", "from 1 to 22"),
    ("manifest.format", "orc", "avro"),
]


@pytest.mark.parametrize(("option", "value", "allowed"), BAD)
def test_a_value_nobody_can_write_is_refused(tmp_path: Path, option: str, value: str, allowed: str) -> None:
    lake = bitlake.connect(tmp_path)
    with pytest.raises(BitlakeError, match=rf"'{option}' = '{value}'.*{allowed}"):
        lake.create_table("t", SCHEMA, options={option: value})
    table = lake.create_table("t", SCHEMA)
    with pytest.raises(BitlakeError, match=rf"'{option}' = '{value}'.*{allowed}"):
        table.alter_options({option: value})
    assert option not in table.schema.options


@pytest.mark.parametrize(("file_format", "codec"), [(f, c) for f, codecs in CODECS.items() for c in codecs])
def test_every_codec_that_is_allowed_writes(tmp_path: Path, file_format: str, codec: str) -> None:
    options = {"file.format": file_format, "file.compression": codec.upper(), "file.compression.zstd-level": "22"}
    table = bitlake.connect(tmp_path).create_table("t", SCHEMA, options=options)
    table.append(pa.table({"i": [1, 2]}, schema=SCHEMA))
    assert table.scan().to_arrow().to_pylist() == [{"i": 1}, {"i": 2}]


def twice(name: str, again: str) -> pa.DataType:
    return pa.list_(pa.struct([pa.field(name, pa.int32()), pa.field(again, pa.int32())]))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (twice("a", "a"), "column 's': its struct has two members named 'a'"),
        (twice("a", "A"), "column 's': its struct has two members named 'A' .names ignore case"),
        (twice("a", " "), "column 's': a member of its struct has no name"),
        (
            pa.map_(pa.string(), pa.struct([("x", twice("a", "a"))])),
            "column 's.x': its struct has two members named 'a'",
        ),
    ],
)
def test_members_of_one_name_are_refused(tmp_path: Path, column: pa.DataType, message: str) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    with pytest.raises(InvalidRequest, match=f"table 'default.t': {message}"):
        lake.create_table("t", pa.schema([("s", column)]))
    with pytest.raises(InvalidRequest, match="table 'default.t': a column's name is blank"):
        lake.create_table("t", pa.schema([("id", pa.int64()), (" ", pa.int64())]))
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidRequest, match=f"table 'default.t': {message}"):
        table.add_column("s", column)
    assert table.schema.id == 0 and lake.tables() == ["t"]


@pytest.mark.parametrize(
    "column",
    [
        pa.timestamp("ns"),
        pa.list_(pa.timestamp("ns", "UTC")),
        pa.map_(pa.string(), pa.struct([("x", pa.timestamp("ns"))])),
    ],
    ids=["column", "list", "map of structs"],
)
def test_nanoseconds_are_refused_at_any_depth(tmp_path: Path, column: pa.DataType) -> None:
    """Bug: as a member they were written as INT96, and so were all other timestamps of the table.

    bitlake then refused to read its own file, if another column had a time after 2262.
    """
    lake = bitlake.connect(str(tmp_path / "lake"))
    with pytest.raises(UnsupportedFeature, match=r"column 'c': TIMESTAMP\(9\).* use precision 6"):
        lake.create_table("t", pa.schema([("c", column), ("at", pa.timestamp("us"))]))
    assert lake.tables() == []
