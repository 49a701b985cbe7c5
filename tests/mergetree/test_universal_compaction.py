"""Universal compaction: what Paimon compacted in the fixture tables is what we would have, and each rule by itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fixtures
import pyarrow as pa
import pytest
from long import every

import bitlake
from bitlake import _clock
from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.io.local import LocalStore
from bitlake.mergetree.universal_compaction import (
    CompactUnit,
    SortedRun,
    pick_compaction,
    pick_full_compaction,
    pick_mostly_deleted,
    sorted_runs,
)
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import needs_lookup
from bitlake.snapshot.manifests import live_files, read_manifest, read_manifest_list
from bitlake.snapshot.state import load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import load_snapshot, snapshot_ids

STORE = LocalStore()
TABLES = sorted(p.name for p in (fixtures.warehouse() / "default.db").iterdir() if p.name.startswith("pk_"))


def test_what_paimon_compacted_is_picked() -> None:
    predicted = 0
    for table in TABLES:
        paths = TablePaths(str(fixtures.warehouse() / "default.db" / table))
        state = load_state(table, TableFiles(STORE, paths))
        assert state is not None
        for snapshot_id in snapshot_ids(TableFiles(STORE, paths)):
            snapshot = load_snapshot(TableFiles(STORE, paths), snapshot_id)
            if snapshot.commit_kind != "COMPACT" or snapshot_id == 1:
                continue
            metas = read_manifest_list(TableFiles(STORE, paths), snapshot.delta_manifest_list)
            delta = [e for m in metas for e in read_manifest(TableFiles(STORE, paths), m.file_name)]
            before = live_files(TableFiles(STORE, paths), load_snapshot(TableFiles(STORE, paths), snapshot_id - 1))
            asked = table == "pk_dv_full_compacted" and snapshot_id == max(snapshot_ids(TableFiles(STORE, paths)))
            for where in {(e.partition, e.bucket) for e in delta}:
                here = [e for e in delta if (e.partition, e.bucket) == where]
                runs = sorted_runs([e for e in before if (e.partition, e.bucket) == where], state.schema)
                unit = (
                    pick_full_compaction(runs, state.schema, has_vector=lambda n: True)
                    if asked
                    else pick_compaction(runs, state.schema)
                )
                assert unit is not None, (table, snapshot_id, where)
                names = {e.file.file_name for e in here if e.kind is EntryKind.DELETE}
                assert {e.file.file_name for e in unit.files} == names, (table, snapshot_id, where)
                levels = {e.file.level for e in here if e.kind is EntryKind.ADD}
                assert levels <= {unit.output_level}, (table, snapshot_id, where)
                predicted += 1
            for where in {(e.partition, e.bucket) for e in before} - {(e.partition, e.bucket) for e in delta}:
                runs = sorted_runs([e for e in before if (e.partition, e.bucket) == where], state.schema)
                assert asked or pick_compaction(runs, state.schema) is None
    assert predicted > 50


# --- the rules --------------------------------------------------------------------------------------------------------


def schema(**options: str) -> TableSchema:
    fields = load_state("t", TableFiles(STORE, TablePaths(str(fixtures.warehouse() / "default.db" / "pk_mor"))))
    assert fields is not None
    return replace(fields.schema, options={k.replace("_", "-").replace("--", "."): v for k, v in options.items()})


def entry(level: int, size: int, name: str = "", **more: Any) -> ManifestEntry:
    file = DataFileMeta(
        name or f"f{level}-{size}", size, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, level
    )
    return ManifestEntry(EntryKind.ADD, EMPTY_ROW, 0, 1, replace(file, **more))


def runs(*sizes: int, top: Sequence[tuple[int, int]] = ()) -> list[SortedRun]:
    """Files of level 0 by size, then (level, size) of those above."""
    level_0 = [SortedRun(0, (entry(0, s, f"f{i}"),)) for i, s in enumerate(sizes)]
    return [*level_0, *(SortedRun(level, (entry(level, s),)) for level, s in top)]


def picked(unit: CompactUnit | None) -> tuple[int, int] | None:
    """(files, output level)."""
    return None if unit is None else (len(unit.files), unit.output_level)


DV = {"deletion_vectors--enabled": "true"}
MIN = {"num_sorted_run--compaction_trigger": "3"}


@pytest.mark.parametrize(
    ("found", "options", "expected"),
    [
        # Nothing to do: fewer runs than the trigger; nothing at all.
        (runs(1, 1, 1, 1), {}, None),
        (runs(), DV, None),
        # Size amplification: 4 of 10 bytes over 1.
        (runs(1, 1, 1, 1, top=[(5, 1)]), {}, (5, 5)),
        (runs(1, 1, 1, 1, top=[(5, 5)]), {}, (4, 4)),
        (runs(1, 1, 1, 1, top=[(5, 1)]), {"compaction--max_size_amplification_percent": "400"}, (5, 5)),
        # Size ratio: stops at the first run that is much larger, and takes nothing if that is the second.
        (runs(10, 100, 1000, 10000, top=[(5, 100000)]), {}, None),
        (runs(10, 10, top=[(3, 15), (4, 1000), (5, 100000)]), {}, (3, 3)),
        # One percent more is near enough, another is not.
        (runs(100, top=[(2, 101), (3, 10**4), (4, 10**6), (5, 10**8)]), {}, (2, 2)),
        (runs(100, top=[(2, 102), (3, 10**4), (4, 10**6), (5, 10**8)]), {}, None),
        (runs(100, top=[(2, 110), (3, 10**4), (4, 10**6), (5, 10**8)]), {"compaction--size_ratio": "10"}, (2, 2)),
        # Too many runs: so many that the trigger's number is left.
        (runs(1, 10, 100, 1000, 10**4, top=[(5, 10**6)]), {}, (5, 4)),
        # Output would be level 0: up to and including the first level above.
        (runs(1, 1, top=[(1, 100), (2, 1000), (3, 10**5)]), {}, (3, 1)),
        # Level 0 forced up: all of it, a level below what is left.
        (runs(1, 2, top=[(5, 10**6)]), DV, (2, 4)),
        (runs(1, 2, top=[(4, 10**6), (5, 10**8)]), DV, (2, 3)),
        (runs(1, 2, top=[(1, 10**6), (5, 10**8)]), DV, (3, 4)),
        (runs(1, 2, top=[(2, 10**6), (5, 10**8)]), DV, (2, 1)),
        (runs(1), DV, (1, 5)),
        (runs(1, top=[(4, 1), (5, 10**6)]), DV, (2, 4)),
        (runs(top=[(4, 1), (5, 10**6)]), DV, None),
        (runs(1), {"merge_engine": "first-row"}, (1, 5)),
        (runs(1), {"changelog_producer": "lookup"}, (1, 5)),
        (runs(1), {"force_lookup": "true"}, (1, 5)),
        (runs(1), {"compaction--force_up_level_0": "true"}, (1, 5)),
        (runs(1), {**DV, "lookup_compact": "gentle"}, None),
        (runs(1), {**DV, "lookup_compact": "gentle", "compaction--force_up_level_0": "true"}, None),
        # Levels: one more than the trigger, as told, or as many as files need.
        (runs(1), {**DV, **MIN}, (1, 3)),
        (runs(1), {**DV, "num_levels": "3"}, (1, 2)),
        (runs(1, top=[(4, 1)]), {**DV, "num_levels": "3"}, (2, 4)),
        # Early full compactions.
        (runs(1, 1), {"compaction--total_size_threshold": "3 b"}, (2, 5)),
        (runs(1, 1), {"compaction--total_size_threshold": "2 b"}, None),
        (runs(1), {"compaction--total_size_threshold": "2 b"}, None),
        (runs(5, 5, top=[(5, 9)]), {"compaction--incremental_size_threshold": "9 b"}, (3, 5)),
        (runs(5, 4, top=[(5, 9)]), {"compaction--incremental_size_threshold": "9 b"}, None),
        (runs(1, 1), {"compaction--optimization_interval": "1 h"}, (2, 5)),
    ],
)
def test_picks(found: list[SortedRun], options: dict[str, str], expected: tuple[int, int] | None) -> None:
    assert picked(pick_compaction(found, schema(**options))) == expected


def test_the_clock_asks_for_a_full_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clock, "local_ms", lambda: 10_000_000)
    hourly = schema(compaction__optimization_interval="1 h")
    hourly = replace(hourly, options={"compaction.optimization-interval": "1 h"})
    old, new = (
        SortedRun(5, (entry(5, 10**6, creation_time=t),)) for t in (10_000_000 - 3_600_001, 10_000_000 - 3_600_000)
    )
    assert picked(pick_compaction([*runs(1), old], hourly)) == (2, 5)
    assert pick_compaction([*runs(1), new], hourly) is None


@pytest.mark.parametrize(
    ("start", "end", "hour", "taken"), [(2, 5, 4, 2), (2, 5, 5, None), (22, 3, 1, 2), (4, 4, 4, None)]
)
def test_off_peak_hours_take_larger_runs(
    start: int, end: int, hour: int, taken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_clock, "local_ms", lambda: (48 + hour) * 3_600_000)
    options = {
        "compaction.offpeak.start.hour": str(start),
        "compaction.offpeak.end.hour": str(end),
        "compaction.offpeak-ratio": "20",
    }
    found = runs(100, top=[(2, 120), (3, 10**4), (4, 10**6), (5, 10**8)])
    unit = pick_compaction(found, replace(schema(), options=options))
    assert (None if unit is None else len(unit.files)) == taken


def test_a_full_compaction_takes_all_or_what_must_be_written_anew() -> None:
    plain = schema()
    assert pick_full_compaction([], plain, has_vector=lambda n: True) is None
    assert picked(pick_full_compaction(runs(1), plain, has_vector=lambda n: False)) == (1, 5)
    assert picked(pick_full_compaction(runs(1, 1, top=[(5, 9)]), plain, has_vector=lambda n: False)) == (3, 5)
    top = [SortedRun(5, (entry(5, 1, "a"), entry(5, 2, "b")))]
    assert pick_full_compaction(top, plain, has_vector=lambda n: False) is None
    assert pick_full_compaction(top, plain, has_vector=lambda n: n == "b") == CompactUnit(
        (top[0].files[1],), 5, rewrite=True
    )
    old = pick_full_compaction(top, plain, has_vector=lambda n: False, expired=lambda e: e.file.file_name == "a")
    assert old == CompactUnit((top[0].files[0],), 5, rewrite=True)
    every = replace(plain, options={"compaction.force-rewrite-all-files": "true"})
    assert picked(pick_full_compaction(top, every, has_vector=lambda n: False)) == (2, 5)


def test_runs_stand_newest_first() -> None:
    made = [
        entry(0, 1, "b", max_sequence_number=5),
        entry(0, 1, "a", max_sequence_number=9),
        entry(3, 1, "d", min_key=EMPTY_ROW),
        entry(0, 1, "c", max_sequence_number=5, min_sequence_number=1),
        entry(1, 1, "e"),
        entry(0, 1, "aa", max_sequence_number=5, creation_time=-1),
    ]
    keyless = replace(schema(), primary_keys=())
    assert [[e.file.file_name for e in r.files] for r in sorted_runs(made, keyless)] == [
        ["a"], ["aa"], ["b"], ["c"], ["e"], ["d"],
    ]  # fmt: skip
    assert [r.level for r in sorted_runs(made, keyless)] == [0, 0, 0, 0, 1, 3]


def test_lookups() -> None:
    assert not needs_lookup(schema())
    assert not needs_lookup(schema(changelog_producer="full-compaction"))
    assert needs_lookup(schema(**DV))


def test_files_with_many_deleted_rows_are_rewritten_where_the_table_asks(tmp_path: Path) -> None:
    """A key table's deleted rows stayed in its files until a full compaction, whatever their share."""
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    lake = bitlake.connect(tmp_path, progress=False)

    def rows(start: int, stop: int, v: int) -> pa.Table:
        return pa.table({"k": range(start, stop), "v": [v] * (stop - start)}, columns)

    for name, more in (("unset", {}), ("asked", {"compaction.delete-ratio-threshold": "0.2"})):
        options = {"bucket": "1", "deletion-vectors.enabled": "true", **more}
        table = lake.create_table(name, columns, primary_key=["k"], options=options)
        table.upsert(rows(0, 1000, 0))
        table.maintenance.compact(full=True)
        table.upsert(rows(0, 200, 1))
        assert table.maintenance.compact() is None, "200 of 1,000 rows are not more than 0.2"
        table.upsert(rows(200, 210, 1))
        big = max(table._core.state().entries(), key=lambda e: e.file.row_count)
        assert big.file.row_count == 1000
        assert (table.maintenance.compact() is not None) == (name == "asked")
        after = max(table._core.state().entries(), key=lambda e: e.file.row_count).file
        assert (after.row_count, after.level) == (790 if name == "asked" else 1000, big.file.level)
        expected = pa.table({"k": range(1000), "v": [1] * 210 + [0] * 790}, columns)
        assert table.scan().to_arrow().sort_by("k").equals(expected)
        assert table.maintenance.compact() is None and table.scan().count() == 1000


# --- against a model --------------------------------------------------------------------------------------------------


class Universal:
    """The rules as Paimon's ``UniversalCompaction`` (Java) states them, one class and one loop each."""

    def __init__(self, levels: int, trigger: int, amplification: int, ratio: int) -> None:
        self.top = levels - 1
        self.trigger, self.amplification, self.ratio = trigger, amplification, ratio

    def pick(self, found: list[tuple[int, int]], total: int | None, incremental: int | None) -> tuple[int, int] | None:
        """(runs, output level) of runs as (level, size)."""
        if len(found) > 1:
            if total is not None and sum(size for _, size in found) < total:
                return len(found), self.top
            if incremental is not None and sum(size for level, size in found if level != self.top) > incremental:
                return len(found), self.top
        if len(found) >= self.trigger:
            if sum(size for _, size in found[:-1]) * 100 > self.amplification * found[-1][1]:
                return len(found), self.top
            unit = self.by_ratio(found, 1, False)
            if unit is not None:
                return unit
        return self.by_ratio(found, len(found) - self.trigger + 1, False) if len(found) > self.trigger else None

    def by_ratio(self, found: list[tuple[int, int]], count: int, forced: bool) -> tuple[int, int] | None:
        size = sum(size for _, size in found[:count])
        while count < len(found):
            level, following = found[count]
            if size * (100 + self.ratio) < following * 100 and (level > 1 or not (forced or count > 1)):
                break
            size, count = size + following, count + 1
        return self.unit(found, count) if forced or count > 1 else None

    def unit(self, found: list[tuple[int, int]], count: int) -> tuple[int, int]:
        if count == len(found):
            return count, self.top
        output = found[count][0] - 1
        if output <= 0:
            output = 0
            for level, _ in found[count:]:
                count += 1
                if level:
                    output = level
                    break
        return count, self.top if count == len(found) else output


@pytest.mark.parametrize("seed", every(2, range(4)))
def test_picks_of_random_runs_are_those_of_the_model(seed: int) -> None:
    rng = random.Random(seed)
    kinds = 0
    for _ in range(1500):
        trigger, amplification, ratio = rng.randint(1, 5), rng.choice([1, 50, 100, 200]), rng.choice([0, 1, 50, 100])
        levels = rng.choice([None, 3, 6])
        used = sorted(
            rng.sample(range(1, (levels or trigger + 1)), rng.randint(0, min(3, (levels or trigger + 1) - 1)))
        )
        sizes = [rng.choice([1, 2, 3, 4, 50, 100, 101, 150, 200]) for _ in range(rng.randint(0, 6))]
        above = [(level, rng.choice([1, 2, 4, 100, 101, 202, 400, 1000, 10**4])) for level in used]
        total, incremental = rng.choice([None, None, 5, 300]), rng.choice([None, None, 5, 300])
        options = {
            "num-sorted-run.compaction-trigger": str(trigger),
            "compaction.max-size-amplification-percent": str(amplification),
            "compaction.size-ratio": str(ratio),
            **({} if levels is None else {"num-levels": str(levels)}),
            **({} if total is None else {"compaction.total-size-threshold": f"{total} b"}),
            **({} if incremental is None else {"compaction.incremental-size-threshold": f"{incremental} b"}),
        }
        model = Universal(max(levels or trigger + 1, 2), trigger, amplification, ratio)
        found = [(0, size) for size in sizes] + above
        expected = model.pick(found, total, incremental) if found else None
        lookup = rng.random() < 0.5
        if lookup:
            options["force-lookup"] = "true"
            if expected is None and sizes:
                expected = model.by_ratio(found, len(sizes), True)
        if expected == (1, found[0][0] if found else None):
            expected = None  # it is there already
        unit = pick_compaction(runs(*sizes, top=above), replace(schema(), options=options))
        assert picked(unit) == expected, (found, options)
        if unit is not None:
            assert [(e.file.level, e.file.file_size) for e in unit.files] == found[
                : len(unit.files)
            ] and not unit.rewrite
            kinds |= 1 << unit.output_level
    assert kinds & 0b111 == 0b110, "all but level 0 are written to"


@pytest.mark.parametrize(
    ("start", "end"), [(0, 23), (0, 1), (5, 8), (22, 3), (23, 0), (1, 0), (-1, 5), (5, -1), (7, 7)]
)
def test_each_hour_is_off_peak_or_not(start: int, end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hours: set[int] = set()
    if start != -1 and end != -1 and start != end:
        hours = {h % 24 for h in range(start, end if end > start else end + 24)}
    options = {"compaction.offpeak-ratio": "20", "num-sorted-run.compaction-trigger": "2"}
    options |= {"compaction.offpeak.start.hour": str(start), "compaction.offpeak.end.hour": str(end)}
    found = runs(100, top=[(2, 121)])
    amplified = {"compaction.max-size-amplification-percent": "1000"}
    for hour in range(24):
        for part in (0, 3_599_999):
            monkeypatch.setattr(_clock, "local_ms", lambda hour=hour, part=part: (240 + hour) * 3_600_000 + part)
            unit = pick_compaction(found, replace(schema(), options=options | amplified))
            assert (unit is not None) is (hour in hours), hour
    over = runs(100, top=[(2, 122)])
    assert pick_compaction(over, replace(schema(), options=options | amplified)) is None


@pytest.mark.parametrize(("ratio", "rows", "deleted", "rewritten"), [
    ("0.2", 10, 2, False), ("0.2", 10, 3, True), ("0.2", 10, None, True), ("0", 10, 0, False), ("0", 10, 1, True),
    ("1", 10, 10, False), ("0.5", 3, 1, False), ("0.5", 3, 2, True),
])  # fmt: skip
def test_the_share_of_deleted_rows_from_which_a_file_is_rewritten(
    ratio: str, rows: int, deleted: int | None, rewritten: bool
) -> None:
    """More than the threshold, or unknown; never level 0, and the highest level that has such a file first."""
    asked = replace(schema(), options={"compaction.delete-ratio-threshold": ratio})
    files = {level: entry(level, 1, f"f{level}", row_count=rows) for level in (0, 3, 5)}
    found = [SortedRun(level, (file,)) for level, file in files.items()]
    for counts, level in (({"f5": deleted, "f3": deleted}, 5), ({"f3": deleted}, 3), ({"f0": deleted}, None)):
        unit = pick_mostly_deleted(found, asked, counts)
        expected = CompactUnit((files[level],), level, rewrite=True) if rewritten and level is not None else None
        assert unit == expected
    assert pick_mostly_deleted(found, schema(), {"f5": rows}) is None


def test_no_file_is_compacted_alone_into_the_level_that_it_has() -> None:
    """Paimon's ``MergeTreeCompactManager`` drops such units; with the options that are allowed no rule makes one."""
    chosen = random.Random(7)
    units = 0
    for _ in range(3_000):
        levels = sorted(chosen.sample(range(1, 6), chosen.randint(0, 5)))
        found = runs(*(chosen.choice([0, 1, 1, 100]) for _ in range(chosen.randint(0, 3))))
        found += [SortedRun(level, (entry(level, chosen.choice([0, 1, 100, 10**4])),)) for level in levels]
        options = {"num_sorted_run--compaction_trigger": str(chosen.randint(1, 5))}
        options |= {"compaction--max_size_amplification_percent": str(chosen.choice([0, 1, 200]))}
        options |= chosen.choice([{}, DV, {"compaction--force_up_level_0": "true"}])
        unit = pick_compaction(found, schema(**options))
        if unit is not None:
            units += 1
            assert unit.files and (len(unit.files) > 1 or unit.files[0].file.level < unit.output_level)
    assert units > 1_000
