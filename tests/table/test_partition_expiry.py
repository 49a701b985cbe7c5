"""When a partition is too old: every part of a format, the last millisecond, and the partitions that stay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake import _clock
from bitlake.errors import InvalidRequest
from bitlake.table.partition_expiry import PartitionAge
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
        return [(p["a"], p["b"]) for p in table.expire_partitions(age, dry_run=True, **more)]


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
    assert expired(table, PartitionAge(0), NOW, monkeypatch, most=3) == found[:3]
    # A column that the pattern names must have a value.
    both = PartitionAge(0, "yyyy-MM-dd 'x'", "$a $b")
    assert expired(table, both, NOW, monkeypatch) == [("2024-01-03", "x")]


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
        (PartitionAge(1, strategy="age"), "'age' is no strategy; there are values-time, update-time"),
        (PartitionAge(1, pattern="$a $c $d"), r"names 'c', and partitions have a, b"),
        (PartitionAge(1, "yyyy-QQ"), "'QQ' is not understood"),
        (PartitionAge(1, "yyy"), "'yyy' is not understood"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            age.check(["a", "b"])
