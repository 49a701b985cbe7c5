"""When a partition is too old: every part of a format, the last millisecond, and the partitions that stay."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import age_terms

import bitlake
from bitlake import _clock
from bitlake.errors import InvalidRequest, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree import dml
from bitlake.metadata.options import PartitionAge
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string())])
NOW = int(datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC).timestamp() * 1000)


def table_of(root: Path, *values: tuple[str | None, str | None]) -> Table:
    made = bitlake.connect(str(root / "lake")).create_table("t", SCHEMA, partition_by=["a", "b"])
    columns = [list(range(len(values))), [a for a, _ in values], [b for _, b in values]]
    made.append(pa.table(columns, schema=SCHEMA))
    return made


def expired(table: Table, age: PartitionAge, now: int, monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[Any]:
    with monkeypatch.context() as patch:
        patch.setattr(_clock, "local_ms", lambda: now)
        return [(p["a"], p["b"]) for p in table.maintenance.expire_partitions(**age_terms(age), dry_run=True, **more)]


@pytest.mark.parametrize(("value", "formatter", "pattern"), [
    (("2024-05-06 07:08:09", "x"), None, None),
    (("20240506", "070809"), "yyyyMMdd HHmmss", "$a $b"),
    (("06.05.24", "07"), "dd.MM.yy 'at' HH:mm:ss", "$a at $b:08:09"),
    (("2024-05", "06 07:08:09"), "yyyy-MM-dd HH:mm:ss", "$a-$b"),
    (("2024", "05"), "yyyy '100%' MM dd HH mm ss", "$a 100% $b 06 07 08 09"),
])  # fmt: skip
def test_a_partition_expires_a_millisecond_after_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: tuple[str, str], formatter: str, pattern: str
) -> None:
    table = table_of(tmp_path, value)
    age = PartitionAge(5000, formatter, pattern)
    assert expired(table, age, NOW + 5001, monkeypatch) == [value]
    assert expired(table, age, NOW + 5000, monkeypatch) == []


@pytest.mark.parametrize(("formatter", "values", "old"), [
    ("yyyyMMdd", ["20240101", "202411", "2024111"], ["20240101"]),
    ("yyyy-MM-dd", ["2024-01-01", "2024-1-1", "2024-01-1"], ["2024-01-01"]),
    ("yyyy-MM-dd HH:mm:ss.SSS", ["2024-01-01 10:11:12.050", "2024-01-01 10:11:12.5"], ["2024-01-01 10:11:12.050"]),
    ("yyyy-M-d H", ["2024-1-1 5", "2024-01-01 24", "2024-1-1 25", "2024-02-31 05"],
     ["2024-01-01 24", "2024-02-31 05", "2024-1-1 5"]),
    ("yyyy-MM-dd HH", ["2024-01-01 05", "2024-01-01  05", "2024-01-01 5"], ["2024-01-01 05"]),
    ("yyyyMM", ["202401"], []),
    ("uuuu-MM-dd", ["2024-01-01", "2024-02-30", "2024-1-1", "24-01-01"], ["2024-01-01", "2024-02-30"]),
    ("'w'yy/MM/dd", ["w24/01/01", "24/01/01"], ["w24/01/01"]),
    (None, ["2024-01-01 10:11:12.5", "2024-1-1 1:2:3", "202411"], ["2024-01-01 10:11:12.5", "2024-1-1 1:2:3"]),
    (None, ["2024-02-30", "2023-13-01 24:00:00", "2024-01-01  05:00:00"], ["2024-02-30", "2023-13-01 24:00:00"]),
    # As Java's lenient formatter parses them.
    (None, ["0000-00-00", "0-1-1", "-5-01-01", "-0-01-01", "+2024-01-01", "0002024-01-01", "2024--1-01", "2024-1--1"],
     ["0000-00-00", "0-1-1", "-5-01-01", "0002024-01-01", "2024--1-01", "2024-1--1"]),
    (None, ["12024-01-01", "-999999999-01-01", "-999999999-00-01", "-1000000000-01-01", "2024-01-01 -1:00:00"],
     ["-999999999-01-01", "2024-01-01 -1:00:00"]),
    ("yyyy-MM-dd", ["0000-00-00", "0000-01-01", "0001-01-01"], ["0001-01-01"]),
])  # fmt: skip
def test_a_formatter_wants_each_part_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formatter: str | None, values: list[str], old: list[str]
) -> None:
    table = table_of(tmp_path, *((value, "x") for value in values))
    found = expired(table, PartitionAge(0, formatter), NOW, monkeypatch)
    assert sorted(a for a, _ in found) == sorted(old)


def test_partitions_without_a_time_stay_and_the_oldest_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        ("2024-01-03", "x"),
        ("2024-01-01", "z"),
        (None, "x"),
        ("soon", "x"),
        ("2024-01-01", None),
        ("2024-01-02", "y"),
    ]
    table = table_of(tmp_path, *rows)
    found = expired(table, PartitionAge(0), NOW, monkeypatch)
    # Of one time by their folders: "__DEFAULT_PARTITION__" comes before "z".
    assert found == [("2024-01-01", None), ("2024-01-01", "z"), ("2024-01-02", "y"), ("2024-01-03", "x")]
    assert expired(table, PartitionAge(0), NOW, monkeypatch, max_expires=3) == found[:3]
    # With a pattern, every column must have a value, as Paimon's PartitionTimeExtractor asks of it.
    both = PartitionAge(0, "yyyy-MM-dd 'x'", "$a $b")
    assert expired(table, both, NOW, monkeypatch) == [("2024-01-03", "x")]
    named = PartitionAge(0, None, "$a")
    assert expired(table, named, NOW, monkeypatch) == [p for p in found if p[1] is not None]


def test_by_its_last_file_a_partition_is_as_young_as_its_last_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, ("old", "x"))
    monkeypatch.setattr(_clock, "local_ms", lambda: NOW)
    for at, value in ((NOW, ("p", "x")), (NOW + 9000, ("p", "x")), (NOW + 5000, ("q", "x")), (NOW + 3000, ("p", "x"))):
        monkeypatch.setattr(_clock, "local_ms", lambda at=at: at)
        table.append(pa.table([[1], [value[0]], [value[1]]], schema=SCHEMA))
    age = PartitionAge(1000, strategy="update-time")
    for now, want in ((NOW + 6000, []), (NOW + 6001, [("q", "x")]), (NOW + 10_000, [("q", "x")])):
        assert [f for f in expired(table, age, now, monkeypatch) if f[0] != "old"] == want
    assert [f for f in expired(table, age, NOW + 10_001, monkeypatch) if f[0] != "old"] == [("q", "x"), ("p", "x")]


def test_what_no_partition_could_go_by_is_refused() -> None:
    good = PartitionAge(1, "yyyy-MM-dd'T'HH:mm:ss.SSS", "$a-$b")
    good.check(["a", "b"])
    for age, why in (
        (PartitionAge(1, strategy="age"), "unknown strategy 'age'; expected values-time, update-time"),
        (PartitionAge(1, pattern="$a $c $d"), r"names 'c', and partitions have a, b"),
        (PartitionAge(1, "yyyy-QQ"), "'QQ' is not understood"),
        (PartitionAge(1, "yyy"), "'yyy' is not understood"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            age.check(["a", "b"])


# --- end-input.check-partition-expire -------------------------------------------------------------------------------

AFTER_COMMIT = {"end-input.check-partition-expire": "true", "partition.expiration-time": "1 d"}
KEYED = {"primary-key": "id,a,b", "bucket": "1"}
OLD, NEW = ("2024-05-01", "x"), ("2024-05-06", "x")


def rows(*ids: int, at: tuple[str, str] = NEW) -> pa.Table:
    return pa.table([list(ids), [at[0]] * len(ids), [at[1]] * len(ids)], schema=SCHEMA)


def ids(table: Table) -> list[int]:
    return sorted(table.scan(["id"]).to_arrow().column("id").to_pylist())


@pytest.fixture
def aged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes a table with a partition that is too old (id 0) and one that is not (id 1)."""
    monkeypatch.setattr(_clock, "local_ms", lambda: NOW)

    def make(options: dict[str, str], partition_by: tuple[str, ...] = ("a", "b")) -> Table:
        table = bitlake.connect(str(tmp_path / "lake")).create_table(
            "t", SCHEMA, partition_by=partition_by, options={k: v for k, v in options.items() if k in KEYED}
        )
        table.append(rows(0, at=OLD))
        table.append(rows(1))
        table.alter_options({k: v for k, v in options.items() if k not in KEYED})
        return table

    return make


@pytest.mark.parametrize("kind", [{}, KEYED], ids=["append", "keyed"])
@pytest.mark.parametrize("name", ["append", "empty", "overwrite", "delete", "update", "compact"])
def test_a_batch_commit_expires_partitions(aged: Any, kind: dict[str, str], name: str) -> None:
    """``end-input.check-partition-expire`` was refused; Paimon's batch commits expire whatever the interval says."""
    table = aged({**kind, **AFTER_COMMIT, "partition.expiration-check-interval": "30 d"})
    wanted = {"append": [1, 2], "overwrite": [3], "delete": []}
    match name:
        case "append":
            table.append(rows(2))
        case "empty":
            table.append(rows())
        case "overwrite":
            table.overwrite(rows(3), partition={"a": NEW[0], "b": NEW[1]})
        case "delete":
            table.delete("id = 1")
        case "update":
            if kind:
                pytest.skip("nothing of these rows but their keys could be changed")
            table.update({"id": 7}, "id = 1")
            wanted["update"] = [7]
        case "compact":
            table.maintenance.compact(full=True)
    assert ids(table) == wanted.get(name, [1])
    last = table._core.state().snapshot
    assert last is not None and last.operation == "TRUNCATE" and table.maintenance.verify().ok


def test_rows_written_to_a_partition_that_is_too_old_go_again(aged: Any) -> None:
    table = aged({**KEYED, **AFTER_COMMIT, "num-sorted-run.compaction-trigger": "1"})
    table.append(rows(5, at=OLD))
    assert ids(table) == [1]


def test_a_commit_expires_at_most_so_many_partitions_and_each_once(aged: Any) -> None:
    table = aged({**AFTER_COMMIT, "partition.expiration-max-num": "2"})
    table.alter_options({"end-input.check-partition-expire": "false"})
    for day in ("01", "02", "03", "04"):
        table.append(rows(int(day), at=(f"2024-04-{day}", "x")))
    table.alter_options({"end-input.check-partition-expire": "true"})
    before = table._core.state().snapshot_id
    table.append(rows(9))
    assert ids(table) == [0, 1, 3, 4, 9]
    assert table._core.state().snapshot_id == before + 2
    table.append(rows(10))
    assert ids(table) == [0, 1, 9, 10]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"partition.expiration-time": "1 d"},
        {"end-input.check-partition-expire": "true"},
        {**AFTER_COMMIT, "partition.expiration-time": "30 d"},
        {**AFTER_COMMIT, "partition.expiration-strategy": "update-time"},
    ],
)
def test_nothing_expires_that_is_not_asked_for(aged: Any, options: dict[str, str]) -> None:
    table = aged(options)
    table.append(rows(2))
    assert ids(table) == [0, 1, 2]


def test_a_table_without_partitions_is_left_alone(aged: Any) -> None:
    """Paimon 1.4 cannot open a table with the option, later versions can."""
    table = aged({}, ())
    with pytest.raises(InvalidRequest, match="'partition.expiration-time' needs a table with partitions"):
        table.alter_options(AFTER_COMMIT)
    schema = max(Path(table.path, "schema").glob("schema-*"))
    made = json.loads(schema.read_text())
    schema.write_text(json.dumps({**made, "options": {**made["options"], **AFTER_COMMIT}}))
    table.append(rows(2))
    assert ids(table) == [0, 1, 2]


def test_truncate_and_batches_of_streams_expire_nothing(aged: Any) -> None:
    table = aged({**KEYED, **AFTER_COMMIT})
    table.truncate({"a": NEW[0], "b": NEW[1]})
    dml.upsert(table._core.written_by("stream"), rows(4), identifier=3)
    assert ids(table) == [0, 4]


def test_a_write_stands_if_partitions_cannot_be_expired(
    aged: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = aged(AFTER_COMMIT)

    def fails(*_: Any) -> None:
        raise StorageUnavailable("no answer")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "bitlake"):
        patch.setattr(FileStoreTable, "truncate", fails)
        snapshot = table.append(rows(2))
    assert snapshot.id == table._core.state().snapshot_id and ids(table) == [0, 1, 2]
    assert "expiring partitions failed: no answer" in caplog.text
    table.append(rows(3))
    assert ids(table) == [1, 2, 3]
