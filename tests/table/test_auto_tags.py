"""Tags by the period: which snapshot gets which, as Paimon's TagAutoCreation decides it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake import _clock
from bitlake.errors import InvalidRequest


def _table(tmp_path: Path, **options: str) -> bitlake.Table:
    lake = bitlake.connect(str(tmp_path / "lake"))
    every = {"sink.process-time-zone": "UTC", **{f"tag.{k.replace('_', '-')}": v for k, v in options.items()}}
    return lake.create_table("t", pa.schema([("a", pa.int32())]), options=every)


def _append(monkeypatch: pytest.MonkeyPatch, table: bitlake.Table, *times: str) -> None:
    for time in times:
        at = int(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000)
        monkeypatch.setattr(_clock, "now_ms", lambda at=at: at)
        table.append(pa.table({"a": pa.array([1], pa.int32())}))


def _tags(table: bitlake.Table) -> dict[str, int]:
    return {name: tag.snapshot.id for name, tag in table.tags().items()}


def test_the_first_snapshot_after_a_day_is_that_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, automatic_creation="process-time")
    _append(monkeypatch, table, "2024-01-02 10:00", "2024-01-02 23:00", "2024-01-03 00:00", "2024-01-05 01:00")
    assert table.create_automatic_tags() == ["2024-01-01", "2024-01-02", "2024-01-04"]
    assert _tags(table) == {"2024-01-01": 1, "2024-01-02": 3, "2024-01-04": 4}
    assert table.create_automatic_tags() == []
    _append(monkeypatch, table, "2024-01-05 23:00", "2024-01-06 00:30")
    assert table.create_automatic_tags() == ["2024-01-05"] and _tags(table)["2024-01-05"] == 6


def test_missing_days_are_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, automatic_creation="process-time", automatic_completion="true")
    _append(monkeypatch, table, "2024-01-02 10:00", "2024-01-05 01:00", "2024-01-05 02:00", "2024-01-05 03:00")
    assert table.create_automatic_tags() == ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]
    assert _tags(table) == {"2024-01-01": 1, "2024-01-02": 2, "2024-01-03": 3, "2024-01-04": 4}


def test_a_delay_waits_and_few_tags_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(
        tmp_path,
        automatic_creation="process-time",
        creation_period="hourly",
        period_formatter="without_dashes",
        creation_delay="10 min",
        num_retained_max="2",
        default_time_retained="1 d",
    )
    times = ("10:00", "11:05", "11:10", "12:30", "13:30")
    _append(monkeypatch, table, *(f"2024-01-02 {t}" for t in times))
    table.create_automatic_tags()
    assert _tags(table) == {"20240102 11": 4, "20240102 12": 5}
    assert {tag.retained_ms for tag in table.tags().values()} == {86_400_000}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"creation_period": "two-hours"}, "2024-01-02 08"),
        ({"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"}, "2024010210"),
        ({"creation_period": "daily", "period_formatter": "without_dashes"}, "20240101"),
        ({"creation_period_duration": "15 min"}, "202401021100"),
    ],
)
def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], name: str) -> None:
    table = _table(tmp_path, automatic_creation="process-time", **options)
    _append(monkeypatch, table, "2024-01-02 11:20")
    assert table.create_automatic_tags() == [name]


def test_nothing_without_the_option_or_a_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path)
    _append(monkeypatch, table, "2024-01-02 11:20")
    assert table.create_automatic_tags() == []
    table.alter_options({"tag.automatic-creation": "watermark"})
    assert table.create_automatic_tags() == []
    table.alter_options({"tag.automatic-creation": "process-time", "tag.creation-delay": "1 d"})
    with pytest.raises(InvalidRequest, match="shorter than a period"):
        table.create_automatic_tags()
    with pytest.raises(InvalidRequest, match="automatic-creation"):
        table.alter_options({"tag.automatic-creation": "batch"})


def test_manifests_are_compacted_and_the_first_snapshot_is_set(tmp_path: Path) -> None:
    table = _table(tmp_path)
    assert table.compact_manifests() is None
    for i in range(3):
        table.append(pa.table({"a": pa.array([i], pa.int32())}))
    made = table.compact_manifests()
    assert made is not None and (made.id, made.commit_kind, made.total_record_count) == (4, "COMPACT", 3)
    assert sorted(table.scan().to_arrow()["a"].to_pylist()) == [0, 1, 2]
    assert table.compact_manifests() is None
    assert table.repair_earliest_snapshot(3) == (1, 3)
    with pytest.raises(InvalidRequest, match="cannot begin with snapshot 9"):
        table.repair_earliest_snapshot(9)
