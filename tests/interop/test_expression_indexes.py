"""Tables with indexes of expressions and of text: Paimon (Java) and pypaimon read and filter them, and write on."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from interop.rows import rows_of, same_rows

import bitlake

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
OPTIONS = {
    "file-index.bitmap.columns": "s",
    "bitlake.index.low": "bitmap(lower(s))",
    "bitlake.index.quoted": "bitmap(replace(s, '\\'', '\"'))",
    "bitlake.index.digit": "bsi(n % 10)",
    "bitlake.index.part": "ngram(s)",
}
WORDS = ["Ada", "O'Neil", "éCOLE", "日本", "", 'x"y']
PLACES = {"embedded": "100 mb", "separate": "1 b"}


def write(warehouse: Path, place: str) -> tuple[bitlake.Table, list[tuple[object, ...]]]:
    lake = bitlake.connect(str(warehouse))
    lake.create_database("db")
    table = lake.create_table("db.t", SCHEMA, options=OPTIONS | {"file-index.in-manifest-threshold": PLACES[place]})
    texts = [None, *WORDS] * 10
    parts = [
        pa.table([list(range(i * 50, i * 50 + 50)), texts[i : i + 50], list(range(50))], schema=SCHEMA)
        for i in range(3)
    ]
    for part in parts:
        table.append(part)
    assert {c.files_indexed for c in table.indexes.coverage()} == {3}
    return table, [r for part in parts for r in rows_of(part)]


@pytest.mark.parametrize("place", PLACES)
def test_java_reads_filters_and_writes_on(tmp_path: Path, java: ModuleType, place: str) -> None:
    table, rows = write(tmp_path, place)
    same_rows(java.dump(tmp_path, "db.t"), rows)
    for word in WORDS:
        same_rows(java.dump(tmp_path, "db.t", s=word), [r for r in rows if r[1] == word])
    java.append(tmp_path, "db.t", [(1000, "ADA", 7)])
    assert table.count("lower(s) = 'ada'") == sum(r[1] == "Ada" for r in rows) + 1
    files = {c.spec.name or c.spec.column: (c.files, c.files_indexed) for c in table.indexes.coverage()}
    assert files["low"] == (4, 3)  # Paimon's own file has the index of the column alone
    assert files["s"] == (4, 4)
    table.indexes.rebuild()
    assert {(c.files, c.files_indexed) for c in table.indexes.coverage()} == {(4, 4)}


@pytest.mark.parametrize("native", [False, True], ids=["python", "rust"])
@pytest.mark.parametrize("place", PLACES)
def test_pypaimon_reads_and_filters(tmp_path: Path, pypaimon: ModuleType, place: str, native: bool) -> None:
    _, rows = write(tmp_path, place)
    same_rows(pypaimon.dump(tmp_path, "db.t", native), rows)
    for word in WORDS:
        same_rows(pypaimon.dump(tmp_path, "db.t", native, s=word), [r for r in rows if r[1] == word])
