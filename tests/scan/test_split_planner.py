"""Which files of a primary-key table are read as they are, merged, or not seen; and what may prune them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from answers import arrow_rows
from caches import forget
from fixtures import copy_warehouse, expected, warehouse

import bitlake
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.metadata.snapshot import Snapshot
from bitlake.scan import top_n as topn_read
from bitlake.scan.plan import SkipReason
from bitlake.scan.planner import key_predicate, split_files
from bitlake.snapshot import file_columns
from bitlake.types.datatypes import parse_type

FIELDS, HIGHEST = assign_ids(
    [("p", parse_type("INT NOT NULL"), None), ("k", parse_type("INT NOT NULL"), None), ("v", parse_type("INT"), None)]
)
SCHEMA = TableSchema(0, FIELDS, HIGHEST, ("p",), ("p", "k"), {"bucket": "1"})


def entry(
    name: str, low: int, high: int, *, level: int = 5, bucket: int = 0, deletes: int | None = 0, partition: int = 1
) -> ManifestEntry:
    kind = [parse_type("INT NOT NULL")]
    keys = [encode_row_with_arity(kind, [k]) for k in (low, high)]
    file = DataFileMeta(
        name, 100, 10, keys[0], keys[1], EMPTY_STATS, EMPTY_STATS, 0, 9, 0, level, delete_row_count=deletes
    )
    return ManifestEntry(EntryKind.ADD, encode_row_with_arity(kind, [partition]), bucket, 1, file)


def names(entries: object) -> list[str]:
    return [e.file.file_name for e in entries]  # type: ignore[attr-defined]


def with_options(**options: str) -> TableSchema:
    return replace(SCHEMA, options={"bucket": "1", **_named(options)})


def _named(options: dict[str, str]) -> dict[str, str]:
    """``a__b_c`` for ``a.b-c``."""
    return {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}


FILES = [
    entry("a", 0, 9),
    entry("b", 5, 15, level=0),
    entry("c", 20, 29),
    entry("d", 0, 9, bucket=1),
    entry("e", 0, 9, partition=2),
    entry("f", 40, 49, deletes=3),
    entry("g", 60, 69, deletes=None),
    entry("h", 0, 0, bucket=-2),
    entry("i", 15, 16),
]


def test_files_alone_with_their_keys_are_read_as_they_are() -> None:
    split = split_files(SCHEMA, FILES)
    assert names(split.direct) == ["c", "d", "e"]
    assert [names(s) for s in split.merged] == [["a", "b", "i"], ["f"], ["g"]]
    assert [(e.file.file_name, why) for e, why in split.hidden] == [("h", SkipReason.POSTPONED)]


@pytest.mark.parametrize("options", [{"deletion_vectors__enabled": "true"}, {"merge_engine": "first-row"}])
def test_level_0_waits_for_a_compaction(options: dict[str, str]) -> None:
    split = split_files(with_options(**options), FILES)
    assert names(split.direct) == ["a", "c", "d", "e", "i"]
    assert [names(s) for s in split.merged] == [["f"], ["g"]]
    assert ("b", SkipReason.LEVEL_0) in [(e.file.file_name, why) for e, why in split.hidden]


def test_merge_on_read_shows_level_0_of_tables_with_vectors() -> None:
    options = {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"}
    split = split_files(with_options(**options), FILES)
    assert [names(s) for s in split.merged] == [["a", "b", "i"], ["f"], ["g"]]


def test_merge_on_read_merges_only_buckets_with_level_0() -> None:
    options = {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"}
    split = split_files(with_options(**options), [entry("x", 0, 9), entry("y", 5, 6)])
    assert names(split.direct) == ["x", "y"] and not split.merged and not split.hidden


@pytest.mark.parametrize(
    ("where", "wanted"),
    [("k = 1", True), ("v = 1", False), ("k = 1 OR v = 1", False), ("p = 1 AND k > 3", True)],
)
def test_only_conditions_on_the_key_prune_before_merging(where: str, wanted: bool) -> None:
    bound = bind(parse_predicate(where), FIELDS)
    assert (key_predicate(SCHEMA, bound) == bound) is wanted
    assert wanted or key_predicate(SCHEMA, bound) is None
    both = bind(parse_predicate(f"({where}) AND k < 9"), FIELDS)
    assert key_predicate(SCHEMA, both) is not None


def _table(tmp_path: Path, name: str, **options: str) -> bitlake.Table:
    """A fixture table with other options, as an ALTER of another engine would leave it."""
    root = copy_warehouse(tmp_path, name)
    path = max((root / "default.db" / name / "schema").glob("schema-*"), key=lambda p: int(p.name[7:]))
    schema = json.loads(path.read_text())
    schema["options"] |= _named(options)
    path.write_text(json.dumps(schema))
    return bitlake.connect(str(root)).table(name)


DV_TABLES = "pk_dv pk_dv_bitmap64 pk_dv_partitioned pk_dynamic_bucket_dv pk_dv_thin pk_orc_dv pk_dv_dml".split()


@pytest.mark.parametrize("name", DV_TABLES)
def test_a_compacted_table_reads_the_same_merged(tmp_path: Path, name: str) -> None:
    """With everything compacted, merging on read changes nothing: vectors are applied before it."""
    plain = bitlake.connect(str(warehouse())).table(name).scan().to_arrow()
    merged = _table(tmp_path, name, deletion_vectors__merge_on_read="true").scan()
    assert sorted(arrow_rows(merged.to_arrow()), key=repr) == sorted(arrow_rows(plain), key=repr)


def test_keys_prune_files_and_rows_before_they_are_merged() -> None:
    table = bitlake.connect(str(warehouse())).table("pk_mor")
    ids = table.scan(columns=["order_id"]).to_arrow().column(0).to_pylist()
    scan = table.scan(where=f"order_id = {ids[3]}")
    rows = scan.to_arrow()
    assert rows.num_rows == 1
    plan = scan.plan()
    assert plan.metrics.files_skipped["bucket"] == 4
    assert sum(len(f.merge.files) for f in plan.files if f.merge) <= 4
    assert plan.metrics.rows_chosen < plan.metrics.rows / 2
    again = table.scan(where=f"order_id = {ids[3]} AND status = 'no such'").to_arrow()
    assert again.num_rows == 0


def test_a_condition_on_values_sees_the_merged_row_only() -> None:
    """A version that was replaced must not be found by what it once was."""
    table = bitlake.connect(str(warehouse())).table("pk_mor")
    every = table.scan().to_arrow()
    statuses = [f"{letter}{n}" for letter in "ABCDS" for n in range(5)]
    for status in statuses:
        wanted = every.filter(pa.compute.equal(every.column("status"), status)).num_rows
        assert table.scan(where=f"status = '{status}'").count() == wanted


def test_counts_are_of_merged_rows() -> None:
    table = bitlake.connect(str(warehouse())).table("pk_mor")
    wanted = next(q["rows"][0][0] for q in expected()["pk_mor"] if "count(*),sum" in q["sql"])
    assert table.scan().count() == wanted < table.scan().plan().metrics.rows
    assert table.scan().exists()


@pytest.mark.parametrize("name", ["pk_mor", "pk_aggregation", "pk_dv", "append_dv"])
def test_the_first_rows_in_order_are_read_in_two_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order column first, then the other columns of the winners, found by their places among the merged rows."""
    monkeypatch.setattr(topn_read, "_FEW_ROWS", 0)
    table = bitlake.connect(str(warehouse())).table(name)
    found = table.scan().top_n([("order_id", "desc")], 3).to_arrow()
    wanted = table.scan().to_arrow().sort_by([("order_id", "descending")]).slice(0, 3)
    assert arrow_rows(found) == arrow_rows(wanted)


def test_vectors_beside_the_data(tmp_path: Path) -> None:
    table = _table(tmp_path, "append_dv", index_file_in_data_file_dir="true")
    root = tmp_path / "default.db" / "append_dv"
    for path in (root / "index").iterdir():
        path.rename(root / "bucket-0" / path.name)
    plain = bitlake.connect(str(warehouse())).table("append_dv").scan().to_arrow()
    forget()
    assert sorted(arrow_rows(table.scan().to_arrow()), key=repr) == sorted(arrow_rows(plain), key=repr)


def test_vectors_that_were_switched_off_are_not_applied(tmp_path: Path) -> None:
    """As Paimon does: switching off without a full compaction brings rows back."""
    table = _table(tmp_path, "append_dv", deletion_vectors__enabled="false")
    plan = table.scan().plan()
    assert not any(f.deleted for f in plan.files)
    assert table.scan().count() == plan.metrics.rows


@pytest.mark.parametrize("name", ["pk_dv", "pk_dv_bitmap64", "pk_partial_update_dv", "pk_dv_lookup_changelog"])
def test_level_0_is_shown_on_request(tmp_path: Path, name: str) -> None:
    """Before its compaction is committed, the last write shows nothing; merged in, it shows what compaction would."""
    compacted = bitlake.connect(str(warehouse())).table(name).scan().to_arrow()
    root = copy_warehouse(tmp_path, name)
    snapshots = sorted((root / "default.db" / name / "snapshot").glob("snapshot-*"), key=lambda p: int(p.name[9:]))
    assert Snapshot.from_json(snapshots[-1].read_bytes()).commit_kind == "COMPACT"
    snapshots[-1].unlink()
    scan = bitlake.connect(str(root)).table(name).scan()
    assert SkipReason.LEVEL_0.value in scan.plan().metrics.files_skipped
    assert sorted(arrow_rows(scan.to_arrow()), key=repr) != sorted(arrow_rows(compacted), key=repr)
    merged = scan.with_level_0()
    assert sorted(arrow_rows(merged.to_arrow()), key=repr) == sorted(arrow_rows(compacted), key=repr)
    assert merged.count() == compacted.num_rows


def test_a_second_plan_of_a_compacted_table_decodes_no_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key table's files were listed again for each plan, so that nothing that was read of them stayed."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = bitlake.connect(tmp_path).create_table("t", schema, primary_key=["id"], options=options)
    table.upsert(pa.table([range(10), range(10)], schema=schema))
    assert table.scan(where="v = 3").count() == 1
    monkeypatch.setattr(file_columns, "column_bounds", lambda *_: pytest.fail("statistics are decoded again"))
    assert table.scan(where="v = 5").to_arrow().to_pydict() == {"id": [5], "v": [5]}
