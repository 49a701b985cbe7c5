"""CREATE TABLE with a primary key: keys, NOT NULL, and what Paimon forbids, each with its reason."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest

COLUMNS = pa.schema([("Id", pa.int32()), ("p", pa.string()), ("v", pa.int64()), ("l", pa.list_(pa.int32()))])


def create(root: Path, partition_by: tuple[str, ...] = (), **options: str) -> bitlake.Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return bitlake.connect(root).create_table("t", COLUMNS, partition_by=partition_by, options=named)


def test_key_columns_become_not_null_and_the_option_goes(tmp_path: Path) -> None:
    schema = create(tmp_path, ("p",), primary_key="id, p").schema
    assert schema.primary_keys == ("Id", "p")
    assert schema.trimmed_primary_keys == ("Id",) == schema.bucket_keys
    assert [f.type.nullable for f in schema.fields] == [False, False, True, True]
    assert "primary-key" not in schema.options
    assert schema.num_buckets == -1


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("z", r"'z' is not among the columns Id, p"),
        ("Id,id", "'id' is named twice"),
        ("p", "no column besides partition columns"),
        ("l", "nested types"),
    ],
)
def test_a_key_that_cannot_be(tmp_path: Path, key: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        create(tmp_path, ("p",), primary_key=key)


def test_the_key_cannot_be_changed_later(tmp_path: Path) -> None:
    table = create(tmp_path, primary_key="Id")
    with pytest.raises(InvalidRequest, match="'primary-key' cannot be set once the table exists"):
        table.alter_options({"primary-key": "Id,p"})
