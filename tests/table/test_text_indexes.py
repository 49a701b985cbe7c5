"""Text indexes: scans that use them return what scans without indexes return, and read less."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import bitlake
from bitlake import Lake, Table
from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import Like
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.ngram import NGRAM
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.selection import Selection
from bitlake.types import DataField, parse_type
from tests.long import long
from tests.random_texts import INDEXES, SCHEMA, random_condition, random_text


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return bitlake.connect(str(tmp_path_factory.mktemp("warehouse")))


@pytest.fixture(scope="module")
def pair(lake: Lake) -> tuple[Table, Table, list[str | None]]:
    """The same rows in files with indexes and without."""
    with_indexes = lake.create_table("indexed", SCHEMA, options=INDEXES)
    without = lake.create_table("plain", SCHEMA)
    draw = random.Random(3)
    texts = [random_text(draw) for _ in range(400)]
    for first in range(0, 400, 100):
        part = pa.table({"id": range(first, first + 100), "message": texts[first : first + 100]}, SCHEMA)
        with_indexes.append(part)
        without.append(part)
    return with_indexes, without, texts


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [80, long(1_000)])
def test_random_conditions_find_what_a_full_scan_finds(pair: tuple[Table, Table, list[str | None]], count: int) -> None:
    with_indexes, without, texts = pair
    draw = random.Random(17)
    used: set[str] = set()
    fewer = 0
    for _ in range(count):
        where = random_condition(draw, texts)
        expected = ids(without, where)
        assert ids(with_indexes, where) == expected, where
        files = with_indexes.scan(where=where).plan().files
        for file in files:
            used.update(file.pruned_by)
        fewer += sum(f.selection.count(f.entry.file.row_count) for f in files) < len(texts)
    assert used == {"ngram(message)", "tokens(message)"}
    assert fewer > count / 4


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("message LIKE '%needle 42 in%'", "ngram"),
        ("message ILIKE '%NEEDLE 42 IN%'", "ngram"),
        ("lower(message) = 'the needle 42 in hay'", "ngram"),
        ("contains(message, 'needle 42')", "ngram"),
        ("startswith(message, 'The needle 42')", "ngram"),
        ("endswith(message, '42 in hay')", "ngram"),
        ("instr(message, 'needle 42') > 0", "ngram"),
        (r"message RLIKE 'needle \\d+ in'", "ngram"),
        ("message LIKE '% needle %'", "tokens"),
        ("has_token(message, 'needle')", "tokens"),
        ("array_contains(split(message, ' '), 'needle')", "tokens"),
        (r"array_contains(split(message, '\\s+'), '42')", "tokens"),
        ("has_all_tokens(message, array('needle', '42'))", "tokens"),
        ("has_any_token(message, array('needle', 'pin'))", "tokens"),
    ],
)
def test_each_condition_skips_files(lake: Lake, where: str, kind: str) -> None:
    name = f"skips_{kind}"
    if name in lake.tables():
        table = lake.table(name)
    else:
        table = lake.create_table(name, SCHEMA, options={"bitlake.index.i": f"{kind}(message)"})
        for i, text in enumerate(("The needle 42 in hay", "only hay", "more hay")):
            table.append(pa.table({"id": [i, i, i], "message": ["A", text, "zz"]}))
    plan = table.scan(where=where).plan()
    assert (plan.metrics.files_read, plan.metrics.files) == (1, 3)
    assert f"skipped by file index: {kind}(message)" in str(table.scan(where=where).explain())
    assert table.count(where) == 1
    explained = lake.sql(f"EXPLAIN SELECT id FROM {name} WHERE {where}", engine="duckdb")
    assert "1 of 3 read; skipped by file index: 2" in str(explained.to_pylist())
    assert lake.sql(f"SELECT id FROM {name} WHERE {where}", engine="duckdb").fetchall() == [(0,)]


def test_rows_of_a_file_are_chosen_by_the_block(lake: Lake) -> None:
    options = {"bitlake.index.i": "ngram(message)", "bitlake.index.i.rows": "8"}
    table = lake.create_table("blocks", SCHEMA, options=options)
    table.append(pa.table({"id": range(800), "message": [f"request {i:05d} is served" for i in range(800)]}))
    (file,) = table.scan(where="message LIKE '%00321 is%'").plan().files
    assert file.selection.count(800) <= 80
    assert ids(table, "message LIKE '%00321 is%'") == [321]


def test_renamed_columns_keep_it_and_rebuild_adds_it(lake: Lake) -> None:
    table = lake.create_table("evolves", SCHEMA)
    for i, text in enumerate(("The needle 42 in hay", "only hay")):
        table.append(pa.table({"id": [i], "message": [text]}))
    table.indexes.create("message", "ngram", name="grams")
    table.indexes.rebuild()
    table.alter(rename={"message": "line"})
    for where in ("line LIKE '%needle%'", "lower(line) LIKE '%needle%'", "line RLIKE 'needle'"):
        assert table.scan(where=where).plan().metrics.files_read == 1
    table.maintenance.compact()
    assert table.scan(where="line LIKE '%haystack%'").plan().metrics.files_read == 0
    assert not table.maintenance.verify().findings


def test_paimon_s_option_cannot_declare_it(lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match="declare it by name"):
        lake.create_table("refused", SCHEMA, options={"file-index.ngram.columns": "message"})


@pytest.mark.parametrize("at", range(0, 100, 7))
def test_a_damaged_container_never_loses_rows(at: int) -> None:
    kind = parse_type("STRING")
    writer = NGRAM.writer(kind, {"rows": "4"})
    lines = [f"request {i:05d} is served" for i in range(800)]
    writer.add(pa.array(lines))
    container = bytearray(encode_container({"ngram[s]": {"ngram": writer.finish()}}, checksums=True))
    container[len(container) * at // 100] ^= 0x10
    index = open_index(lambda o, n: bytes(container[o : o + n]), len(container), [DataField(0, "s", kind)], len(lines))
    selection = index.evaluate(Like("s", "%00321 is%"))
    assert 321 in selection.positions(len(lines))
    assert index.problems or selection != Selection.all()
