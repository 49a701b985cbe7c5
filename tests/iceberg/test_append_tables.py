"""Iceberg metadata of append tables: read back by the specification after every commit."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from iceberg_reader import IcebergTable, local, sorted_rows
from long import few, long

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.iceberg import manifest
from bitlake.table.table import Table

ON = {"metadata.iceberg.storage": "table-location"}
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])
EVERY = pa.schema(
    [
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("w", pa.decimal128(30, 5)),
        ("s", pa.string()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("ms", pa.timestamp("ms")),
        ("us", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int32())),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("mp", pa.map_(pa.string(), pa.int64())),
    ]
)


def table_of(root: Path, schema: pa.Schema = SCHEMA, partition_by: tuple[str, ...] = ()) -> Table:
    return bitlake.connect(str(root)).create_table("t", schema, partition_by=partition_by, options=ON)


def rows_of(ids: range | list[int], value: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "v": [value] * len(ids), "p": [f"p{i % 3}" for i in ids]}, schema=SCHEMA)


def iceberg(table: Table) -> IcebergTable:
    """The table as Iceberg readers see it, checked."""
    found = IcebergTable.open(Path(table.path) / "metadata")
    found.check()
    return found


def same_rows(table: Table) -> IcebergTable:
    """Assert that Iceberg readers see the rows of the table."""
    found = iceberg(table)
    # A new column is shown from the next commit on, as in Paimon.
    columns = [f["name"] for f in found.schema["fields"]]
    assert sorted_rows(found.rows()) == sorted_rows(table.scan(columns).to_arrow())
    assert found.metadata["current-snapshot-id"] == table.snapshot.id
    return found


def test_every_commit_is_published(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for i in range(4):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
        found = same_rows(table)
        assert [s["snapshot-id"] for s in found.metadata["snapshots"]] == list(range(1, i + 2))
        assert found.current["summary"]["operation"] == "append"
    # Earlier manifests are carried over: one more manifest for each commit.
    assert len(found.manifests()) == 4
    assert [sorted_rows(found.rows(2))] == [sorted_rows(table.scan(snapshot=2).to_arrow())]
    names = sorted(p.name for p in (tmp_path / "default.db/t/metadata").glob("v*"))
    assert names == ["v4.metadata.json", "version-hint.text"]


def test_a_table_without_the_option_has_no_metadata(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    table.append(rows_of(range(3)))
    assert not (Path(table.path) / "metadata").exists()


def test_members_are_paimons(tmp_path: Path) -> None:
    """The members, their order and their values, as Paimon's IcebergMetadata writes them."""
    table = table_of(tmp_path, partition_by=("p",))
    table.append(rows_of(range(3)))
    text = (Path(table.path) / "metadata/v1.metadata.json").read_text()
    meta = json.loads(text)
    assert list(meta) == [
        *("format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id"),
        *("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders"),
        *("default-sort-order-id", "snapshots", "current-snapshot-id", "properties", "refs"),
    ]
    assert (meta["format-version"], meta["location"], meta["last-column-id"]) == (2, f"file:{table.path}", 2)
    spec = {"name": "p", "transform": "identity", "source-id": 2, "field-id": 1000}
    assert meta["partition-specs"] == [{"spec-id": 0, "fields": [spec]}] and meta["last-partition-id"] == 1000
    (snapshot,) = meta["snapshots"]
    assert "parent-snapshot-id" not in snapshot and snapshot["timestamp-ms"] == table.snapshot.time_millis
    assert snapshot["summary"]["paimon-commit-identity"] == table.snapshot.uuid
    assert snapshot["summary"]["changed-partition-count"] == "3"
    assert text.startswith('{\n  "format-version" : 2,\n')


def test_every_type(tmp_path: Path) -> None:
    table = table_of(tmp_path, EVERY)
    time = datetime.datetime(2024, 2, 3, 4, 5, 6, 789000)
    row: dict[str, Any] = {
        "b": True, "i8": -3, "i16": 300, "i32": -70000, "i64": 1 << 40, "f": 1.5, "d": -2.25, "m": Decimal("-1.28"),
        "w": Decimal("12345678901234567890.12345"), "s": "zażółć gęślą jaźń and more", "x": b"\xff\x00", "us": time,
        "day": datetime.date(1969, 12, 31), "ms": time, "tz": time.replace(tzinfo=datetime.UTC), "l": [1, None, 3],
        "st": {"a": 1, "b": "x"}, "mp": [("k", 1)],
    }  # fmt: skip
    table.append(pa.Table.from_pylist([row, dict.fromkeys(row)], schema=EVERY))
    table.append(pa.Table.from_pylist([{**row, "d": float("nan"), "f": float("nan")}], schema=EVERY))
    found = iceberg(table)
    types = {f["name"]: f["type"] for f in found.schema["fields"]}
    assert [types[n] for n in ("b", "i8", "i16", "i32", "i64", "f", "d", "m", "w", "s", "x", "day")] == [
        *("boolean", "int", "int", "int", "long", "float", "double", "decimal(10, 2)", "decimal(30, 5)", "string"),
        *("binary", "date"),
    ]
    assert (types["ms"], types["us"], types["tz"]) == ("timestamp", "timestamp", "timestamptz")
    element = {"type": "list", "element-id": 536870911 + 15 * 1024 + 1, "element-required": False, "element": "int"}
    assert types["l"] == element
    assert types["st"]["type"] == "struct" and [f["name"] for f in types["st"]["fields"]] == ["a", "b"]
    assert (types["mp"]["key-id"], types["mp"]["value-id"]) == (536870911 - 19 * 1024 - 1, 536870911 + 19 * 1024 + 1)
    (file, nan) = found.live()
    assert {p["key"] for p in file["lower_bounds"]} == set(range(15))  # nested columns have none
    assert {p["key"] for p in nan["lower_bounds"]} == set(range(15)) - {5, 6}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [datetime.date(2024, 1, 1), datetime.date(1960, 5, 5), None]),
        (pa.int8(), [3, -100, None]),
        (pa.string(), ["ä", "b", None]),
        (pa.bool_(), [True, False]),
        (pa.decimal128(7, 2), [Decimal("1.28"), Decimal("-0.01")]),
        (pa.timestamp("ms"), [datetime.datetime(2024, 1, 1, 12), datetime.datetime(1969, 1, 1)]),
    ],
    ids=str,
)
def test_partitions(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("id", pa.int64()), ("a b", kind)])
    table = table_of(tmp_path, schema, ("a b",))
    for value in values:
        table.append(pa.table({"id": [1, 2], "a b": [value, value]}, schema=schema))
    found = iceberg(table)
    assert found.metadata["partition-specs"][0]["fields"][0]["name"] == "a b"
    assert [list(f["partition"]) for f in found.live()] == [["a_x20b"]] * len(values)
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    # A removed file is looked for in the manifests of its partition only.
    before = {m["manifest_path"] for m in found.manifests()}
    table.overwrite(pa.table({"id": [7], "a b": [values[0]]}, schema=schema), {})
    found = iceberg(table)
    assert sorted_rows(found.rows()) == sorted_rows(table.scan().to_arrow())
    assert len(before & {m["manifest_path"] for m in found.manifests()}) == len(values) - 1


def test_deletes_overwrites_and_compactions(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for i in range(3):
        table.append(rows_of(range(i * 10, i * 10 + 10)))
    table.delete("id >= 5 AND id < 15")
    found = same_rows(table)
    assert found.current["summary"]["operation"] == "overwrite"
    kinds = sorted((e["status"], e["snapshot_id"], e["sequence_number"]) for e in found.entries())
    # The files of snapshots 1 and 2 are deleted by snapshot 4, which adds what is left.
    assert (2, 4, 1) in kinds and (2, 4, 2) in kinds and (1, 3, 3) in kinds and (1, 4, 4) in kinds
    table.update({"v": "'new'"}, "id = 25")
    same_rows(table)
    table.maintenance.compact(full=True)
    assert same_rows(table).current["summary"]["operation"] == "replace"
    assert len(found.files()) >= 1
    table.overwrite(rows_of(range(4)))
    assert len(same_rows(table).rows()) == 4
    table.delete()
    assert same_rows(table).rows() == []


def test_evolved_columns(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.append(rows_of(range(3)))
    table.alter(rename={"v": "word"})
    table.alter(add={"n": "INT"})
    wide = pa.table({"id": [7], "word": ["y"], "p": ["p1"], "n": pa.array([4], pa.int32())})
    table.append(wide)
    found = same_rows(table)
    assert [s["schema-id"] for s in found.metadata["schemas"]] == [0, 1, 2]
    assert found.metadata["last-column-id"] == 3 and found.current["schema-id"] == 2
    table.alter(drop=["word"])
    table.append(wide.drop_columns(["word"]))
    assert same_rows(table).metadata["last-column-id"] == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", few(range(3), 1, 2))
def test_random_commits(tmp_path: Path, seed: int) -> None:
    """Fifteen commits of all kinds: after each, Iceberg readers see the rows of the table."""
    chance = random.Random(seed)
    version = str(2 + seed % 2)
    vectors = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"} if version == "3" else {}
    limits = {
        "metadata.iceberg.compaction.min.file-num": "3",
        "metadata.iceberg.compaction.max.file-num": str(chance.randint(3, 6)),
        "snapshot.num-retained.min": "2",
        "snapshot.num-retained.max": "5",
    }
    options = {**ON, **limits, **vectors, "metadata.iceberg.format-version": version}
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", SCHEMA, partition_by=["p"] if seed else [], options=options)
    done, following, added = 0, 0, 0
    while done < 15:
        match chance.choice(["append", "append", "append", "delete", "update", "compact", "evolve", "expire"]):
            case "append":
                rows = rows_of(range(following, following + 10))
                for i in range(added):
                    rows = rows.append_column(f"n{i}", pa.array([i] * 10, pa.int32()))
                table.append(rows)
                following += 10
            case "delete":
                table.delete(f"id = {chance.randrange(following + 1)}")
            case "update":
                table.update({"v": f"'u{done}'"}, f"id < {chance.randrange(following + 1)}")
            case "compact":
                table.maintenance.compact(full=True)
            case "evolve":
                table.alter(add={f"n{added}": "INT"})
                added += 1
                continue
            case "expire":
                table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=datetime.timedelta(0))
                continue
        if table.snapshot is None:
            continue
        done += 1
        found = same_rows(table)
        assert len(found.metadata["snapshots"]) <= 5
        listed = {local(m["manifest_path"]).name for s in found.metadata["snapshots"] for m in found.manifests(s)}
        lists = {local(s["manifest-list"]).name for s in found.metadata["snapshots"]}
        puffins = {Path(f["file_path"]).name for s in found.metadata["snapshots"] for f in found.live(1, s)}
        existing = {p.name for p in found.folder.iterdir()} - {"version-hint.text"}
        assert existing == {*listed, *lists, *puffins, f"v{table.snapshot.id}.metadata.json"}


def test_small_manifests_are_merged(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    options = {**ON, "metadata.iceberg.compaction.min.file-num": "2", "metadata.iceberg.compaction.max.file-num": "4"}
    table = lake.create_table("t", SCHEMA, options=options)
    counts = []
    for i in range(6):
        table.append(rows_of([i]))
        counts.append(len(same_rows(table).manifests()))
    assert counts == [1, 2, 3, 2, 3, 2]


def test_versions_that_options_keep(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    options = {**ON, "metadata.iceberg.previous-versions-max": "2"}
    table = lake.create_table("t", SCHEMA, options=options)
    for i in range(5):
        table.append(rows_of([i]))
    folder = Path(table.path) / "metadata"
    assert sorted(p.name for p in folder.glob("*.json")) == [f"v{i}.metadata.json" for i in (3, 4, 5)]
    other = lake.create_table("u", SCHEMA, options={**ON, "metadata.iceberg.delete-after-commit.enabled": "false"})
    for i in range(3):
        other.append(rows_of([i]))
    assert len(list((Path(other.path) / "metadata").glob("*.json"))) == 3


def test_the_folder_of_a_hadoop_catalog(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    lake.create_database("db")
    table = lake.create_table("db.t", SCHEMA, options={"metadata.iceberg.storage": "hadoop-catalog"})
    table.append(rows_of(range(4)))
    folder = tmp_path / "iceberg/db/t/metadata"
    assert sorted_rows(IcebergTable.open(folder).rows()) == sorted_rows(table.scan().to_arrow())
    # A dropped table leaves it, and another one of the name replaces it; files of others stay.
    uuid = IcebergTable.open(folder).metadata["table-uuid"]
    (folder / "notes.txt").write_text("mine")
    lake.drop_table("db.t")
    assert folder.exists()
    table = lake.create_table("db.t", SCHEMA, options={"metadata.iceberg.storage": "hadoop-catalog"})
    table.append(rows_of([9]))
    found = IcebergTable.open(folder)
    found.check()
    assert [r["id"] for r in found.rows()] == [9] and found.metadata["table-uuid"] != uuid
    assert (folder / "notes.txt").read_text() == "mine"
    assert len(list(folder.iterdir())) == 5
    both = {"metadata.iceberg.storage": "hadoop-catalog", "metadata.iceberg.storage-location": "table-location"}
    other = lake.create_table("db.u", SCHEMA, options=both)
    other.append(rows_of([1]))
    assert len(iceberg(other).rows()) == 1


@pytest.mark.parametrize("codec", ["snappy", "zstd", "deflate", "null"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    options = {**ON, "metadata.iceberg.manifest-compression": codec}
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA, options=options)
    table.append(rows_of(range(3)))
    table.delete("id = 1")
    found = same_rows(table)
    expected = {"zstd": b"zstandard"}.get(codec, codec.encode())
    data = local(found.manifests()[0]["manifest_path"]).read_bytes()
    assert expected in data[: data.index(b"manifest_entry") + 20000]


def test_legacy_names_of_counts(tmp_path: Path) -> None:
    options = {**ON, "metadata.iceberg.manifest-legacy-version": "true"}
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA, options=options)
    table.append(rows_of(range(3)))
    table.append(rows_of(range(3)))
    found = IcebergTable.open(Path(table.path) / "metadata")
    assert [m["added_data_files_count"] for m in found.manifests()] == [1, 1]
    table.alter_options({"metadata.iceberg.manifest-legacy-version": "false"})
    table.append(rows_of(range(3)))
    assert len(same_rows(table).manifests()) == 3


@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"metadata.iceberg.storage": "hive-catalog"}, SCHEMA, "disabled, table-location, hadoop-catalog"),
        ({"metadata.iceberg.storage": "rest-catalog"}, SCHEMA, "no Hive or REST catalog"),
        ({"metadata.iceberg.uri": "thrift://x"}, SCHEMA, "'table-location' or 'hadoop-catalog'"),
        ({"metadata.iceberg.rest.uri": "http://x"}, SCHEMA, "'table-location' or 'hadoop-catalog'"),
        ({"metadata.iceberg.table-properties.a": "b"}, SCHEMA, "metadata.iceberg.table-properties.a"),
        ({"metadata.iceberg.format-version": "1"}, SCHEMA, "it takes 2 or 3"),
        ({**ON, "deletion-vectors.enabled": "true"}, SCHEMA, "would see deleted rows"),
        ({**ON, "file.format": "csv"}, SCHEMA, "no csv files"),
        (ON, pa.schema([("t", pa.timestamp("s"))]), "column 't'.*use one of 3 to 6 digits"),
    ],
)
def test_what_cannot_be_published_is_refused(
    tmp_path: Path, options: dict[str, str], schema: pa.Schema, message: str
) -> None:
    lake = bitlake.connect(str(tmp_path))
    with pytest.raises(InvalidRequest, match=message):
        lake.create_table("t", schema, options=options)


def test_tables_of_other_catalogs_are_not_written(tmp_path: Path) -> None:
    """A table that Paimon made for a Hive catalog: a commit that did not register it would go unnoticed."""
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    file = Path(table.path) / "schema/schema-0"
    made = json.loads(file.read_text())
    made["options"]["metadata.iceberg.storage"] = "hive-catalog"
    file.write_text(json.dumps(made))
    with pytest.raises(InvalidRequest, match="'metadata.iceberg.storage' = 'hive-catalog'.*hadoop-catalog"):
        table.append(rows_of(range(3)))
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("codec", [long("snappy"), "zstd"])
def test_the_rest_of_a_manifest_is_copied_when_a_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Of 150 files, only the entries beside the removed one are decoded, and none is encoded again."""
    lake = bitlake.connect(str(tmp_path))
    options = {**ON, "metadata.iceberg.manifest-compression": codec}
    table = lake.create_table("t", SCHEMA, partition_by=["id"], options=options)
    table.append(pa.table({"id": range(150), "v": ["x"] * 150, "p": ["p"] * 150}, schema=SCHEMA))
    before = {e["data_file"]["file_path"]: e for e in iceberg(table).entries()}
    decoded: list[int] = []
    encoded: list[int] = []
    checked, hinted = manifest._checked, manifest._hinted

    def count_decoded(records: Any) -> list[manifest.Entry]:
        found = checked(records)
        decoded.append(len(found))
        return found

    def count_encoded(entry: manifest.Entry) -> manifest.Entry:
        encoded.append(1)
        return hinted(entry)

    monkeypatch.setattr(manifest, "_checked", count_decoded)
    monkeypatch.setattr(manifest, "_hinted", count_encoded)
    for number in (77, 78, 140):
        decoded.clear()
        encoded.clear()
        table.delete(f"id = {number}")
        assert 0 < sum(decoded) < 90 and sum(encoded) == 1  # the deleted entry has a manifest of its own
        after = {e["data_file"]["file_path"]: e for e in iceberg(table).entries() if e["status"] != 2}
        del before[next(f for f in before if f"/id={number}/" in f)]
        assert after == {f: {**e, "status": 0} for f, e in before.items()}
    assert len(same_rows(table).rows()) == 147
    decoded.clear()
    table.delete("id BETWEEN 100 AND 109")
    assert 0 < sum(decoded) < 90
    assert len(same_rows(table).rows()) == 137


def test_values_like_the_beginning_of_an_entry(tmp_path: Path) -> None:
    """Bounds that hold the bytes by which added entries are found: the manifest is decoded instead."""
    lake = bitlake.connect(str(tmp_path))
    schema = pa.schema([("id", pa.int64()), ("x", pa.binary())])
    table = lake.create_table("t", schema, partition_by=["id"], options=ON)
    like = b"\x02" + b"\x02\x02" * 3 + b"\x00"  # status added, snapshot and sequence numbers 1, content data
    table.append(pa.table({"id": range(9), "x": [like * 2] * 9}, schema=schema))
    assert all(b["value"] == like * 2 for f in iceberg(table).live() for b in f["lower_bounds"] if b["key"] == 1)
    table.delete("id = 4")
    found = same_rows(table)
    assert Counter(e["status"] for e in found.entries()) == {0: 8, 2: 1}
    assert all(b["value"] == like * 2 for f in found.live() for b in f["lower_bounds"] if b["key"] == 1)
