from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import every

from bitlake.errors import InvalidRequest
from bitlake.fileindex.container import read_header
from bitlake.fileindex.registry import INDEX_TYPES, IndexBuilder, IndexSpec, parse_index_options
from bitlake.types import DataField, parse_type
from bitlake.types.datatypes import field_from_json
from tests.fixtures import warehouse

PAIMON_ITEMS = "1000000"
FILES = sorted(warehouse().rglob("*.index"))


def table_schema(path: Path) -> tuple[list[DataField], dict[str, str]]:
    """Fields and options of the table a data file is in, as its first schema has them."""
    root = next(p for p in path.parents if (p / "schema").is_dir())
    schema = json.loads((root / "schema" / "schema-0").read_text())
    return [field_from_json(f) for f in schema["fields"]], schema["options"]


def paimon_specs(options: dict[str, str], fields: list[DataField]) -> list[IndexSpec]:
    """The indexes as Paimon builds them: its bloom filters assume a million items."""
    return [
        IndexSpec(
            s.column,
            s.index_type,
            {"items": PAIMON_ITEMS, **s.options} if s.index_type == "bloom-filter" else s.options,
        )
        for s in parse_index_options(options, fields)
    ]


@pytest.mark.parametrize("path", every(2, FILES), ids=lambda p: f"{p.parts[-3]}-{p.name[5:13]}")
def test_javas_index_files_come_out_of_their_data(path: Path) -> None:
    fields, options = table_schema(path)
    want = path.read_bytes()
    data = pq.read_table(path.with_suffix(""))
    names = [n for n in data.schema.names if pa.types.is_string(data.schema.field(n).type)]
    coded = pq.read_table(path.with_suffix(""), read_dictionary=names)
    for table in (data, coded):
        builder = IndexBuilder(paimon_specs(options, fields), fields)
        for batch in table.to_batches(max_chunksize=max(table.num_rows // 3, 1)):
            builder.add(batch)
        assert builder.finish() == want


def test_map_keys_and_shared_columns() -> None:
    fields = [DataField(0, "s", parse_type("STRING"))]
    specs = [IndexSpec("s", "bitmap", {}), IndexSpec("s", "bloom-filter", {})]
    builder = IndexBuilder(specs, fields)
    builder.add(pa.table({"s": ["a", "b", None]}))
    header = read_header(builder.finish())
    assert set(header.columns["s"]) == {"bitmap", "bloom-filter"}


def test_nothing_to_build() -> None:
    builder = IndexBuilder([], [])
    builder.add(pa.table({"s": ["a"]}))
    assert builder.finish() == b""


def test_no_rows() -> None:
    fields = [DataField(0, "s", parse_type("STRING"))]
    header = read_header(
        IndexBuilder(
            [IndexSpec("s", t, {}) for t in INDEX_TYPES if INDEX_TYPES[t].supports(fields[0].type)], fields
        ).finish()
    )
    assert header.columns["s"]


def test_missing_columns() -> None:
    fields = [DataField(0, "s", parse_type("STRING"))]
    with pytest.raises(InvalidRequest, match="'t'"):
        IndexBuilder([IndexSpec("t", "bitmap", {})], fields)
    with pytest.raises(InvalidRequest, match="'s'"):
        IndexBuilder([IndexSpec("s", "bitmap", {})], fields).add(pa.table({"x": [1]}))
