"""Tags by the period: which snapshot gets which, as Paimon's TagAutoCreation decides it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake import _clock
from bitlake.errors import InvalidRequest
from bitlake.write import commit as commits


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
    return {name: tag.snapshot.id for name, tag in table.history.tags().items()}


def test_the_first_snapshot_after_a_day_is_that_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, automatic_creation="process-time")
    _append(monkeypatch, table, "2024-01-02 10:00", "2024-01-02 23:00")
    assert _tags(table) == {"2024-01-01": 1}
    _append(monkeypatch, table, "2024-01-03 00:00", "2024-01-05 01:00")
    assert _tags(table) == {"2024-01-01": 1, "2024-01-02": 3, "2024-01-04": 4}
    assert table.maintenance.create_automatic_tags() == []
    _append(monkeypatch, table, "2024-01-05 23:00", "2024-01-06 00:30")
    assert _tags(table)["2024-01-05"] == 6


def test_tags_of_commits_made_without_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path)
    _append(monkeypatch, table, "2024-01-02 10:00", "2024-01-02 23:00", "2024-01-03 00:00", "2024-01-05 01:00")
    table.alter_options({"tag.automatic-creation": "process-time"})
    assert table.maintenance.create_automatic_tags() == ["2024-01-01", "2024-01-02", "2024-01-04"]
    assert _tags(table) == {"2024-01-01": 1, "2024-01-02": 3, "2024-01-04": 4}


def test_a_commit_makes_up_for_tags_that_others_did_not_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, automatic_creation="process-time")
    _append(monkeypatch, table, "2024-01-02 10:00")
    monkeypatch.setattr(commits, "tag_commit", lambda *_: None)
    _append(monkeypatch, table, "2024-01-03 01:00", "2024-01-04 01:00")
    monkeypatch.undo()
    _append(monkeypatch, table, "2024-01-05 01:00")
    assert _tags(table) == {"2024-01-01": 1, "2024-01-02": 2, "2024-01-03": 3, "2024-01-04": 4}


def test_every_write_moves_the_tag_of_its_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, automatic_creation="batch", num_retained_max="2", default_time_retained="3 d")
    _append(monkeypatch, table, "2024-01-02 10:00", "2024-01-02 23:00")
    table.history.create_tag("mine", 1)
    assert _tags(table) == {"batch-write-2024-01-02": 2, "mine": 1}
    _append(monkeypatch, table, "2024-01-03 10:00", "2024-01-04 10:00")
    assert _tags(table) == {"batch-write-2024-01-03": 3, "batch-write-2024-01-04": 4, "mine": 1}
    assert table.history.tags()["batch-write-2024-01-04"].retained_ms == 3 * 86_400_000
    table.delete("a = 1")
    assert _tags(table)["batch-write-2024-01-04"] == 5
    _append(monkeypatch, table, "2024-01-04 11:00")
    table.truncate()
    table.maintenance.create_automatic_tags()
    assert table._core.state().snapshot_id == 7
    assert _tags(table)["batch-write-2024-01-04"] == 6, "only what writes rows moves it, as in Paimon"
    table.alter_options({"tag.batch.customized-name": "newest"})
    _append(monkeypatch, table, "2024-01-09 10:00")
    assert _tags(table)["newest"] == table._core.state().snapshot_id == 8


def test_writes_to_keys_tag_what_they_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    options = {"bucket": "1", "tag.automatic-creation": "batch", "tag.batch.customized-name": "newest"}
    options |= {"changelog-producer": "lookup"}
    table = lake.create_table("k", pa.schema([("a", pa.int32())]), primary_key=["a"], options=options)
    _append(monkeypatch, table, "2024-01-02 10:00")
    kinds = [s.commit_kind for s in table.history.snapshots()]
    assert kinds == ["APPEND", "COMPACT"] and _tags(table) == {"newest": 2}
    table.alter_options({"write-only": "true"})
    _append(monkeypatch, table, "2024-01-02 11:00")
    table.alter_options({"write-only": "false"})
    table.maintenance.compact(full=True)
    assert _tags(table) == {"newest": 3} and table._core.state().snapshot_id == 4


def test_tags_whose_time_is_over_go_with_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, time_expire_enabled="true")
    now = [int(datetime(2024, 1, 2, tzinfo=UTC).timestamp() * 1000)]
    monkeypatch.setattr(_clock, "now_ms", lambda: now[0])
    monkeypatch.setattr(_clock, "local_ms", lambda: now[0])
    rows = pa.table({"a": pa.array([1], pa.int32())})
    table.append(rows)
    table.history.create_tag("short", retain=timedelta(milliseconds=3600000))
    table.history.create_tag("long")
    table.append(rows)
    assert set(_tags(table)) == {"short", "long"}
    now[0] += 3_600_001
    table.append(rows)
    assert set(_tags(table)) == {"long"}


def test_tags_by_the_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bitlake's writers carry the watermark on that a stream of Paimon's left."""
    table = _table(tmp_path, automatic_creation="watermark")
    _append(monkeypatch, table, "2024-01-02 10:00")
    assert _tags(table) == {}
    shutil.move(str(tmp_path / "lake"), str(tmp_path / "moved"))
    table = bitlake.connect(str(tmp_path / "moved")).table("t")
    path = Path(table.path, "snapshot", "snapshot-1")
    mark = int(datetime(2023, 7, 9, 1, tzinfo=UTC).timestamp() * 1000)
    path.write_text(path.read_text().rstrip().removesuffix("}") + f', "watermark" : {mark}\n}}')
    _append(monkeypatch, table, "2024-01-03 10:00")
    assert _tags(table) == {"2023-07-08": 1}


def test_a_commit_stands_whatever_becomes_of_its_tags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(tmp_path, automatic_creation="process-time", creation_delay="1 d")
    _append(monkeypatch, table, "2024-01-02 10:00")
    assert table.scan().count() == 1 and _tags(table) == {}
    assert "snapshot 1 is committed, but creating its tags failed" in caplog.text


def test_missing_days_are_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path, automatic_creation="process-time", automatic_completion="true")
    _append(monkeypatch, table, "2024-01-02 10:00", "2024-01-05 01:00", "2024-01-05 02:00", "2024-01-05 03:00")
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
    assert _tags(table) == {"20240102 11": 4, "20240102 12": 5}
    assert {tag.retained_ms for tag in table.history.tags().values()} == {86_400_000}


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
    assert set(_tags(table)) == {name}


def test_nothing_without_the_option_or_a_watermark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path)
    _append(monkeypatch, table, "2024-01-02 11:20")
    assert table.maintenance.create_automatic_tags() == []
    table.alter_options({"tag.automatic-creation": "watermark"})
    assert table.maintenance.create_automatic_tags() == []
    table.alter_options({"tag.automatic-creation": "process-time", "tag.creation-delay": "1 d"})
    with pytest.raises(InvalidRequest, match="shorter than a period"):
        table.maintenance.create_automatic_tags()
    with pytest.raises(InvalidRequest, match="automatic-creation"):
        table.alter_options({"tag.automatic-creation": "hourly"})


def test_manifests_are_compacted_and_the_first_snapshot_is_set(tmp_path: Path) -> None:
    table = _table(tmp_path)
    assert table.maintenance.compact_manifests() is None
    for i in range(3):
        table.append(pa.table({"a": pa.array([i], pa.int32())}))
    made = table.maintenance.compact_manifests()
    assert made is not None and (made.id, made.commit_kind, made.total_record_count) == (4, "COMPACT", 3)
    assert sorted(table.scan().to_arrow()["a"].to_pylist()) == [0, 1, 2]
    assert table.maintenance.compact_manifests() is None
    assert table.maintenance.repair_earliest_snapshot(3) == (1, 3)
    with pytest.raises(InvalidRequest, match="cannot begin with snapshot 9"):
        table.maintenance.repair_earliest_snapshot(9)


@pytest.mark.parametrize(
    ("options", "names", "other"),
    [
        ({}, ["2024-12-03", "2024-12-04"], "20241204"),
        ({"creation_period": "hourly"}, ["2024-12-03 23", "2024-12-04 00"], "2024-12-04"),
        (
            {"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"},
            ["2024120323", "2024120400"],
            "2024-12-04 00",
        ),
        ({"creation_period_duration": "10 min"}, ["202412032350", "202412040000"], "2024-12-04"),
    ],
)
def test_changes_up_to_an_automatic_tag(tmp_path: Path, options: dict[str, str], names: list[str], other: str) -> None:
    """The names are those of the table's periods.  Bug: some names that commits give to tags were refused."""
    table = _table(tmp_path, **options)
    lake = bitlake.connect(str(tmp_path / "lake"))
    for number, name in enumerate(("2024-99-99", *names, "mine"), 1):
        table.append(pa.table({"a": pa.array([number], pa.int32())}))
        table.history.create_tag(name)

    def rows(tag: str) -> list[tuple[int, ...]]:
        return lake.sql(f"SELECT a FROM paimon_incremental_to_auto_tag('t', '{tag}')", engine="duckdb").fetchall()

    assert rows(names[1]) == [(3,)]
    assert rows(names[0]) == [], "no period before it has a tag"
    counts = f"SELECT count(*), max(a) FROM paimon_incremental_to_auto_tag('t', '{names[0]}')"
    assert lake.sql(counts, engine="duckdb").fetchall() == [(0, None)]
    with pytest.raises(InvalidRequest, match="not the name of an automatic tag, such as"):
        rows(other)


def test_tags_by_the_hour_count_as_tags_of_their_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Paimon, after the period was changed to days; other names with a blank are the user's."""
    table = _table(tmp_path, automatic_creation="process-time", creation_period="hourly")
    _append(monkeypatch, table, "2024-05-06T00:30")
    table.history.create_tag("2024-05-04 noon")
    table.alter_options({"tag.creation-period": "daily"})
    _append(monkeypatch, table, "2024-05-06T10:00")
    assert _tags(table) == {"2024-05-05 23": 1, "2024-05-04 noon": 1}, "that day has its tag"
    table.alter_options({"tag.num-retained-max": "1"})
    _append(monkeypatch, table, "2024-05-07T10:00")
    assert _tags(table) == {"2024-05-06": 3, "2024-05-04 noon": 1}
