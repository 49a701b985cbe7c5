"""Compactions of tables without deletion vectors: merge-on-read, looked up, first-row, full-compaction changelogs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import every, exhaustive, halves, long
from lsm_bucket import BucketTable
from lsm_builders import context_of, put_files, rows_of, state_of

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.merge import sort_merge_reader as stream
from bitlake.mergetree.bucket import BucketReader
from bitlake.mergetree.compaction import compact_unit
from bitlake.mergetree.universal_compaction import CompactUnit, pick_full_compaction
from bitlake.scan import column_reader as fetch
from bitlake.schema.merge_spec import max_level
from bitlake.types import DataField
from bitlake.types.datatypes import parse_type

ADDS, ALL = [0, 0, 2], [0, 0, 0, 2, 3, 1]
SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "min"}
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "a,t"}
SMALL = {"target-file-size": "1 kb"}
LOOKUP = {"changelog-producer": "lookup"}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows at a time, so that chunks are cut."""
    monkeypatch.setattr(fetch, "_BATCH_ROWS", 9)
    monkeypatch.setattr(stream, "MEMORY", 1)


MERGED: dict[str, tuple[dict[str, str], Sequence[int]]] = {
    "deduplicate": ({}, ALL),
    "deduplicate-small": (SMALL, ALL),
    "ignore-delete": ({"ignore-delete": "true"}, ALL),
    "sequence": ({"sequence.field": "g", "file.format": "orc"}, ADDS),
    "partial-update": ({"merge-engine": "partial-update", **SMALL}, ADDS),
    "groups": (GROUP, ADDS),
    "aggregation": ({**SUM, "file.format": "avro"}, ADDS),
}


@pytest.mark.parametrize("case", every(2, MERGED))
@pytest.mark.parametrize("rounds", [4, long(8)])
def test_merge_on_read_shows_the_same_whatever_was_compacted(case: str, rounds: int, tmp_path: Path) -> None:
    options, kinds = MERGED[case]
    table = BucketTable(tmp_path, options, ("k",), len(case))
    for _ in range(rounds):
        for _ in range(table.random.randint(1, 3)):
            table.write(kinds)
        unit = table.unit()
        if unit is not None:
            assert not table.compact(unit)
        assert table.seen() == table.whole_history()
    top = max_level(table.context.schema.opts, (r.level for r in table.runs))
    table.compact(CompactUnit(tuple(e for r in table.runs for e in r.files), top))
    rows = [r for r in table.physical() if r["level"] == top]
    assert len(rows) == len(table.whole_history()), "deletes are gone from the highest level, and nothing else is there"


@pytest.mark.parametrize(
    ("more", "case"), every(4, halves(["", "small", "formats"], ["deduplicate", "partial-update", "aggregation"]))
)
def test_lookup_changelogs_without_vectors(case: str, more: str, tmp_path: Path) -> None:
    options = {"deduplicate": {}, "partial-update": {"merge-engine": "partial-update"}, "aggregation": SUM}[case]
    kinds = ALL if case == "deduplicate" else ADDS
    shape = {"": {}, "small": SMALL, "formats": {"file.format.per.level": "0:avro"}}[more]
    table = BucketTable(tmp_path, {**LOOKUP, **options, **shape}, ("k", "x"), len(shape))
    for _ in range(6):
        table.write(kinds)
        unit = table.unit()
        if unit is None:
            continue
        changelog = table.compact(unit)
        assert sorted(changelog, key=repr) == sorted(table.model.compact(table.pending), key=repr)
        table.pending = []
        # Sums would count double if readers merged what lookups have merged.
        assert table.seen() == {k: table.model.values(r) for k, r in table.model.rows.items()}
        assert not table.vectors()


def test_force_lookup_needs_no_changelog(tmp_path: Path) -> None:
    table = BucketTable(tmp_path, {"force-lookup": "true", **SUM}, ("k",), 5)
    for _ in range(5):
        table.write(ADDS)
        unit = table.unit()
        if unit is not None:
            assert not table.compact(unit)
            table.model.compact(table.pending)
            table.pending = []
            assert table.seen() == {k: table.model.values(r) for k, r in table.model.rows.items()}


@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("more", [{}, exhaustive({**SMALL, "ignore-delete": "true"})], ids=["", "small"])
def test_the_first_row_stays(producer: str, more: dict[str, str], tmp_path: Path) -> None:
    options = {"merge-engine": "first-row", "changelog-producer": producer, **more}
    table = BucketTable(tmp_path, options, ("k", "x"), 11)
    for _ in range(7):
        for _ in range(table.random.randint(1, 2)):
            table.write(ALL if "ignore-delete" in more else [0], 20)
        unit = table.unit()
        if unit is None:
            continue
        changelog = table.compact(unit)
        wanted = table.model.compact(table.pending)
        table.pending = []
        # The key is in one row of all levels above 0.
        table.check_once()
        assert sorted(v for _, v in changelog) == sorted(v for _, v in wanted if producer == "lookup")


def test_first_row_takes_no_deletes(tmp_path: Path) -> None:
    options = {"merge-engine": "first-row", "ignore-delete": "true"}
    table = BucketTable(tmp_path, {}, ("k",), 3)
    table.write([3])
    strict = BucketTable(tmp_path, {**options, "ignore-delete": "false"}, ("k",), 3)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidRequest, match="first-row"):
        compact_unit(strict.context, strict.store, table.state, CompactUnit(table.state.files, 5))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("case", "deduplicate"), every(4, halves(["deduplicate", "partial-update", "aggregation", "small"], [True, False]))
)
def test_full_compactions_tell_what_changed_since_the_last(case: str, deduplicate: bool, tmp_path: Path) -> None:
    options = {"partial-update": {"merge-engine": "partial-update"}, "aggregation": SUM, "small": SMALL}.get(case, {})
    asked = {
        "changelog-producer": "full-compaction",
        "changelog-producer.row-deduplicate": str(deduplicate).lower(),
    }
    table = BucketTable(tmp_path, {**options, **asked}, ("k",), len(case))
    kinds = ADDS if case in ("partial-update", "aggregation") else ALL
    known: dict[Any, tuple[Any, ...]] = {}
    touched: set[Any] = set()
    for number in range(12):
        table.write(kinds, 30)
        touched |= {table.model.key(r) for r in table.pending}
        table.pending = []
        runs = table.runs
        top = max_level(table.context.schema.opts, (r.level for r in runs))
        unit = (
            table.unit() if number % 3 else pick_full_compaction(runs, table.context.schema, has_vector=lambda n: False)
        )
        if unit is None:
            continue
        changelog = table.compact(unit)
        now = table.whole_history()
        assert table.seen() == now
        wanted: list[tuple[int, tuple[Any, ...]]] = []
        if unit.output_level == top:
            for key in sorted(touched):
                old, new = known.get(key), now.get(key)
                if old is None and new is not None:
                    wanted.append((0, new))
                elif old is not None and new is None:
                    wanted.append((3, old))
                elif old is not None and new is not None and not (deduplicate and old == new):
                    wanted += [(1, old), (2, new)]
            known, touched = now, set()
        assert changelog == wanted


def test_files_of_older_schemas_are_compacted_as_the_table_is_now(tmp_path: Path) -> None:
    """A column that came later is NULL, one that grew is cast, one renamed is found; kept files stay as they are."""
    old, store = context_of(tmp_path, [("k", "INT NOT NULL"), ("a", "INT"), ("b", "STRING")], ["k"], {})
    fields = (
        old.schema.fields[0],
        replace(old.schema.fields[1], name="grown", type=parse_type("BIGINT")),
        DataField(7, "new", parse_type("STRING")),
    )
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "merge-engine": "partial-update"}
    schema = replace(old.schema, id=1, fields=fields, highest_field_id=7, options=options)
    now = replace(old, schema=schema, schemas={0: old.schema, 1: schema})

    def row(k: int, number: int, **more: Any) -> dict[str, Any]:
        return {"k": k, **more, "_SEQUENCE_NUMBER": number, "_VALUE_KIND": 0}

    above = put_files(old, store, 5, rows_of(old, [row(k, k, a=k * 10, b="x") for k in range(4)]))
    fresh = put_files(old, store, 0, rows_of(old, [row(1, 10, a=None, b="y"), row(9, 11, a=90, b="z")]))
    fresh += put_files(
        now, store, 0, rows_of(now, [row(1, 20, grown=None, new="n"), row(2, 21, grown=2**40, new=None)])
    )
    state = state_of(now, store, [*above, *fresh])
    done = compact_unit(now, store, state, CompactUnit(tuple(fresh), 4))
    (made,) = done.after
    assert made.file.schema_id == 1
    reader = BucketReader(now, store, state.partition, {})
    found = [tuple(r.values()) for t in reader.read(made, ("k", "grown", "new")) for r in t.to_pylist()]
    assert found == [(1, 10, "n"), (2, 2**40, None), (9, 90, None)]
    assert [(r.data_file, r.cardinality) for r in done.index[0].new[0].ranges or ()] == [(above[0].file.file_name, 2)]
    lower = replace(above[0], file=replace(above[0].file, level=4))
    kept = compact_unit(now, store, state_of(now, store, [lower]), CompactUnit((lower,), 5))
    assert [e.file for e in kept.after] == [above[0].file]


def test_changelogs_of_full_compactions_pair_the_rows_of_text_keys(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.int64())])
    options = {"bucket": "1", "changelog-producer": "full-compaction"}
    table = bitlake.connect(tmp_path).create_table("t", schema, primary_key=["k"], options=options)
    keys = [f"{i * 37 % 101:x}" for i in range(60)]
    table.upsert(pa.table({"k": keys, "v": range(60)}, schema=schema))
    table.maintenance.compact(full=True)
    before = table.snapshot
    assert before is not None
    table.upsert(pa.table({"k": keys[40:10:-3], "v": range(100, 110)}, schema=schema))
    table.maintenance.compact(full=True)
    changed = table.changes(before.id, mode="changelog").to_arrow().to_pylist()
    expected = {("-U", keys[i], i) for i in range(40, 10, -3)}
    expected |= {("+U", k, v) for k, v in zip(keys[40:10:-3], range(100, 110), strict=True)}
    assert {(r["rowkind"], r["k"], r["v"]) for r in changed} == expected and len(changed) == 20
