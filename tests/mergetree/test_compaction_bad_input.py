"""Compactions that cannot be done leave nothing behind; rows past their time leave in those that are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from lsm_bucket import BucketTable
from lsm_builders import context_of, put_files, rows_of, state_of
from store_wrappers import FaultyStore

from bitlake import _clock
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, StorageUnavailable
from bitlake.merge import sort_merge_reader
from bitlake.mergetree import compaction
from bitlake.mergetree.bucket import BucketReader
from bitlake.mergetree.compaction import ChangelogMaker, RecordExpire, compact_unit
from bitlake.mergetree.universal_compaction import CompactUnit, pick_full_compaction
from bitlake.scan import column_reader
from bitlake.schema.merge_spec import MergeSpec
from bitlake.snapshot.partitions import index_path

DV = {"deletion-vectors.enabled": "true"}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[BucketTable]:
    """Level 0 over levels 4 and 5, with vectors."""
    made = BucketTable(tmp_path, {**DV, "changelog-producer": "lookup"}, ("k",), 1)
    for level in (5, 4):
        made.write([0])
        made.compact(CompactUnit(tuple(e for e in made.state.files if e.file.level == 0), level))
    made.write([0, 3])
    assert {e.file.level for e in made.state.files} == {0, 4, 5} and made.vectors()
    yield made
    forget()


def unit_of(table: BucketTable) -> CompactUnit:
    return CompactUnit(tuple(e for e in table.state.files if e.file.level < 5), 4)


@pytest.mark.parametrize("level", [0, 4, 5])
def test_a_file_that_cannot_be_read_is_named(table: BucketTable, level: int) -> None:
    entry = next(e for e in table.state.files if e.file.level == level)
    path = Path(BucketReader(table.context, table.store, table.state.partition, {}).path(entry))
    data = bytearray(path.read_bytes())
    data[20:-800] = b"\xaa" * (len(data) - 820)
    path.write_bytes(data)
    forget()
    before = sorted(p for p in path.parents[1].rglob("*"))
    with pytest.raises(BitlakeError, match=entry.file.file_name):
        compact_unit(table.context, table.store, table.state, unit_of(table))
    assert sorted(p for p in path.parents[1].rglob("*")) == before
    path.unlink()
    forget()
    with pytest.raises(BitlakeError, match=entry.file.file_name):
        compact_unit(table.context, table.store, table.state, unit_of(table))


def test_vectors_that_cannot_be_read_are_an_error(table: BucketTable) -> None:
    assert table.state.vectors is not None
    path = Path(index_path(table.context.paths, table.context.schema, table.state.vectors))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"checksum.*index-"):
        compact_unit(table.context, table.store, table.state, unit_of(table))


def test_a_disk_that_fails_leaves_nothing_behind(table: BucketTable, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    failed = 0
    for n in range(60):
        store = FaultyStore(table.store, fail_at=n)
        try:
            compact_unit(table.context, store, table.state, unit_of(table))
        except StorageUnavailable:
            failed += 1
            assert [p for p in sorted(tmp_path.rglob("*")) if p not in before] == []
            continue
        break
    assert failed > 3


def test_twice_the_same(table: BucketTable) -> None:
    ours, theirs = (compact_unit(table.context, table.store, table.state, unit_of(table)) for _ in range(2))
    assert [replace(e.file, file_name="", creation_time=0) for e in ours.new_files] == [
        replace(e.file, file_name="", creation_time=0) for e in theirs.new_files
    ]
    assert [r.cardinality for r in ours.index[0].new[0].ranges or ()] == [
        r.cardinality for r in theirs.index[0].new[0].ranges or ()
    ]
    assert ours.before == theirs.before


# --- record-level expiry ----------------------------------------------------------------------------------------------

NOW = 1_600_000_000
TIMES: dict[str, Any] = {
    "INT": lambda s: s,
    "BIGINT": lambda s: s,
    "BIGINT NOT NULL": lambda s: s * 1000,
    "TIMESTAMP(3)": lambda s: datetime(1970, 1, 1) + timedelta(seconds=s),
    "TIMESTAMP(6)": lambda s: datetime(1970, 1, 1) + timedelta(seconds=s, microseconds=999_999),
    "TIMESTAMP(9)": lambda s: s * 10**9,
}


@pytest.mark.parametrize("made", TIMES)
def test_rows_leave_after_their_time(made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clock, "now_ms", lambda: NOW * 1000 + 999)
    options = {"record-level.expire-time": "1 h", "record-level.time-field": "time"}
    if made != "TIMESTAMP(9)":
        options["target-file-size"] = "1 kb"  # so that files are kept as they are where that is right
    context, store = context_of(tmp_path, [("k", "INT NOT NULL"), ("time", made)], ["k"], {**DV, **options})
    ages: list[int | None] = [0, 3600, 3601, 10**6]
    ages += [] if "NOT NULL" in made else [None]
    rows = [
        {"k": i, "time": None if a is None else TIMES[made](NOW - a), "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0}
        for i, a in enumerate(ages)
    ]
    young, old = rows_of(context, rows[:2]), rows_of(context, rows[2:])
    files = put_files(context, store, 0, young, old)
    expire = RecordExpire.of(context)
    assert expire is not None
    # Files keep no statistics of TIMESTAMP(9): it is known from their rows alone, once they are read.
    assert [expire.expired(e) for e in files] == [False, made != "TIMESTAMP(9)"]
    state = state_of(context, store, files)
    done = compact_unit(context, store, state, CompactUnit(tuple(files), 5))
    kept = {e.file.file_name for e in done.after}
    assert (files[0].file.file_name in kept) == (made != "TIMESTAMP(9)") and files[1].file.file_name not in kept
    reader = BucketReader(context, store, state.partition, {})
    left = [r["k"] for e in done.after for t in reader.read(e, ("k",)) for r in t.to_pylist()]
    assert sorted(left) == [i for i, a in enumerate(ages) if a is None or a <= 3600]


def test_a_row_past_its_time_above_is_marked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would stand beside its new version, for readers do not expire."""
    monkeypatch.setattr(_clock, "now_ms", lambda: NOW * 1000)
    options = {
        "record-level.expire-time": "1 h",
        "record-level.time-field": "a",
        "merge-engine": "aggregation",
        "fields.b.aggregate-function": "sum",
    }
    columns = [("k", "INT NOT NULL"), ("a", "BIGINT"), ("b", "BIGINT")]
    context, store = context_of(tmp_path, columns, ["k"], {**DV, **options})
    old = {"k": 1, "a": 5, "b": 100, "_SEQUENCE_NUMBER": 0, "_VALUE_KIND": 0}
    new = {"k": 1, "a": NOW, "b": 1, "_SEQUENCE_NUMBER": 1, "_VALUE_KIND": 0}
    (above,) = put_files(context, store, 5, rows_of(context, [old]))
    (fresh,) = put_files(context, store, 0, rows_of(context, [new]))
    state = state_of(context, store, [above, fresh])
    done = compact_unit(context, store, state, CompactUnit((fresh,), 4))
    (index,) = done.index
    assert [(r.data_file, r.cardinality) for r in index.new[0].ranges or ()] == [(above.file.file_name, 1)]
    reader = BucketReader(context, store, state.partition, {})
    assert [r for t in reader.read(done.after[0], ("b",)) for r in t.to_pylist()] == [{"b": 1}]


def test_expiry_needs_a_column_of_time(tmp_path: Path) -> None:
    for name in ("t", "nothing"):
        options = {"record-level.expire-time": "1 h", "record-level.time-field": name}
        context, _ = context_of(tmp_path, [("k", "INT NOT NULL"), ("t", "STRING")], ["k"], options)
        with pytest.raises(InvalidRequest, match="record-level"):
            RecordExpire.of(context)


def test_a_full_compaction_of_the_highest_level_writes_anew_what_has_vectors(table: BucketTable) -> None:
    table.compact(CompactUnit(table.state.files, 5))
    table.write([0], 5)
    table.compact(CompactUnit(tuple(e for e in table.state.files if e.file.level == 0), 4))
    marked = set(table.vectors())
    top = [e for e in table.state.files if e.file.level == 5]
    table.state = replace(table.state, files=tuple(top))
    unit = pick_full_compaction(table.runs, table.context.schema, has_vector=lambda n: n in marked)
    assert unit is not None and unit.rewrite
    alive = len(table.physical())
    table.compact(unit)
    assert not table.vectors() and sum(e.file.row_count for e in table.state.files) == alive


@pytest.mark.parametrize(("more", "rewritten"), [(-1, 0), (0, 0), (1, 2)])
def test_files_of_the_least_size_are_kept(tmp_path: Path, more: int, rewritten: int) -> None:
    """Paimon's MergeTreeCompactTask writes files anew that are smaller than the least size, and upgrades others."""
    columns = [("k", "INT NOT NULL")]
    context, store = context_of(tmp_path, columns, ["k"], {})
    made = [rows_of(context, [{"k": k, "_SEQUENCE_NUMBER": k, "_VALUE_KIND": 0}]) for k in (1, 2)]
    files = put_files(context, store, 0, *made)
    (size,) = {e.file.file_size for e in files}
    options = {"target-file-size": f"{size + more} b", "compaction.small-file-ratio": "1"}
    context, store = context_of(tmp_path, columns, ["k"], options)
    done = compact_unit(context, store, state_of(context, store, files), CompactUnit(tuple(files), 5))
    assert sorted(e.file.file_name for e in done.before) == sorted(e.file.file_name for e in files)
    assert len(done.new_files) == (1 if rewritten else 0)
    assert {e.file.level for e in done.after} == {5} and sum(e.file.row_count for e in done.after) == 2


def test_times_from_10_to_the_12_on_are_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a BIGINT column; 10^12 milliseconds are 10^9 seconds."""
    monkeypatch.setattr(_clock, "now_ms", lambda: 10**12 + 2000)
    options = {"record-level.expire-time": "1900 ms", "record-level.time-field": "a"}
    context, _ = context_of(tmp_path, [("k", "INT NOT NULL"), ("a", "BIGINT")], ["k"], options)
    expire = RecordExpire.of(context)
    assert expire is not None and expire.oldest == 10**9 + 1
    times = [10**9, 10**9 + 1, 10**12 - 1, 10**12, 10**12 + 999, 10**12 + 1000, None]
    kept = expire.keep(pa.table({"a": pa.array(times, pa.int64())}))
    assert kept.column("a").to_pylist() == [10**9 + 1, 10**12 - 1, 10**12 + 1000, None]


@pytest.mark.parametrize(("output", "drops"), [(3, False), (4, True), (5, True)])
@pytest.mark.parametrize("vectors", [False, True])
def test_delete_rows_stay_while_files_below_may_have_their_keys(
    output: int, drops: bool, vectors: bool, tmp_path: Path
) -> None:
    """Paimon's ``dropDelete``: from the highest level with files on, and always with deletion vectors."""
    context, store = context_of(tmp_path, [("k", "INT NOT NULL")], ["k"], DV if vectors else {})

    numbers = itertools.count()

    def row(key: int, kind: int) -> dict[str, int]:
        return {"k": key, "_SEQUENCE_NUMBER": next(numbers), "_VALUE_KIND": kind}

    (old,) = put_files(context, store, 4, rows_of(context, [row(1, 0), row(9, 0)]))
    files = put_files(context, store, 0, rows_of(context, [row(1, 3), row(2, 0)]), rows_of(context, [row(2, 0)]))
    state = state_of(context, store, [old, *files])
    done = compact_unit(context, store, state, CompactUnit(tuple(files if output == 3 else state.files), output))
    rows, deletes = sum(e.file.row_count for e in done.after), sum(e.file.delete_row_count or 0 for e in done.after)
    dropped = drops or vectors
    assert (rows, deletes) == ((1 if output == 3 else 2, 0) if dropped else (2, 1))
    alone = compact_unit(context, store, state_of(context, store, files), CompactUnit(tuple(files), 1))
    assert [(e.file.level, e.file.row_count, e.file.delete_row_count) for e in alone.after] == [(1, 1, 0)]


def test_keys_of_a_kept_file_are_looked_up_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key's row above is marked, however the keys are cut."""
    context, store = context_of(tmp_path, [("k", "INT NOT NULL")], ["k"], {**DV, "target-file-size": "1 b"})
    made = [[{"k": k, "_SEQUENCE_NUMBER": n, "_VALUE_KIND": 0} for k in range(n, 20, 2 - n)] for n in (0, 1)]
    (old,) = put_files(context, store, 5, rows_of(context, made[0]))
    (new,) = put_files(context, store, 0, rows_of(context, made[1]))
    monkeypatch.setattr(column_reader, "_BATCH_ROWS", 4)
    monkeypatch.setattr(sort_merge_reader, "MEMORY", 1)
    looked_up: list[int] = []
    inner = compaction.KeyLookup.find

    def find(self: Any, keys: Any) -> Any:
        looked_up.append(len(keys[0]))
        return inner(self, keys)

    monkeypatch.setattr(compaction.KeyLookup, "find", find)
    for at_once, parts in ((4, [4, 4, 4, 4, 3]), (5, [8, 8, 3]), (8, [8, 8, 3]), (100, [19])):
        monkeypatch.setattr(compaction, "_KEYS_AT_ONCE", at_once)
        looked_up.clear()
        done = compact_unit(context, store, state_of(context, store, [old, new]), CompactUnit((new,), 4))
        assert [e.file.file_name for e in done.after] == [new.file.file_name] and looked_up == parts
        (index,) = done.index
        assert [(r.data_file, r.cardinality) for r in index.new[0].ranges or ()] == [(old.file.file_name, 9)]


def test_statistics_of_another_type_do_not_tell_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do those of a file without the column."""
    monkeypatch.setattr(_clock, "now_ms", lambda: NOW * 1000)
    options = {"record-level.expire-time": "1 h", "record-level.time-field": "t"}
    for stored, expired in (("TIMESTAMP(3)", True), ("TIMESTAMP(6)", False), (None, False)):
        columns = [("k", "INT NOT NULL"), *([] if stored is None else [("t", stored)])]
        old, store = context_of(tmp_path, columns, ["k"], options if stored else {})
        made = {"k": 1, "_SEQUENCE_NUMBER": 0, "_VALUE_KIND": 0, **({"t": datetime(1970, 1, 2)} if stored else {})}
        (entry,) = put_files(old, store, 0, rows_of(old, [made]))
        new, _ = context_of(tmp_path, [("k", "INT NOT NULL"), ("t", "TIMESTAMP(3)")], ["k"], options)
        new = replace(new, schema=replace(new.schema, id=1), schemas={0: old.schema, 1: new.schema})
        expire = RecordExpire.of(new)
        assert expire is not None and expire.expired(entry) == expired


@pytest.mark.parametrize("ignored", [True, False])
def test_ignored_deletes_supersede_no_row_above(tmp_path: Path, ignored: bool) -> None:
    """The keys that are looked up above lose their rows there: keys of nothing but ignored deletes are not."""
    options = {**DV, "ignore-delete": str(ignored).lower()}
    context, _ = context_of(tmp_path, [("k", "INT NOT NULL"), ("v", "INT")], ["k"], options)
    spec, looked_up = MergeSpec.of(context.schema), []

    class Lookup:
        def find(self, keys: list[pa.Array]) -> list[Any]:
            looked_up.append([k.to_pylist() for k in keys])
            return []

    def merged(*rows: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        """Merges rows of a key, a kind and a level; returns their keys, numbers and kinds."""
        made = [{"k": k, "v": i, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": kind} for i, (k, kind, _) in enumerate(rows)]
        chunk = rows_of(context, made).append_column("_LEVEL", pa.array([r[2] for r in rows], pa.int32()))
        reader: Any = SimpleNamespace(schema=context.schema)
        lookup: Any = Lookup()
        looked_up.clear()
        result = compaction.LookupMerge(spec, reader, lookup, lambda hit: None, None, lambda t: t).merge(chunk)
        assert result.changelog is None and "_LEVEL" not in result.rows.column_names
        return list(zip(*result.rows.select(["k", "v", "_VALUE_KIND"]).to_pydict().values(), strict=True))

    rows = merged((1, 0, 3), (1, 3, 0), (2, 3, 0), (3, 0, 0), (4, 3, 4), (4, 3, 0))
    assert rows == ([(1, 0, 0), (3, 3, 0)] if ignored else [(1, 1, 3), (2, 2, 3), (3, 3, 0), (4, 5, 3)])
    assert looked_up == [[[3] if ignored else [2, 3]]], "keys without a row of the levels that are merged"
    rows = merged((1, 0, 0), (2, 3, 0))
    assert rows == ([(1, 0, 0)] if ignored else [(1, 0, 0), (2, 1, 3)])
    assert looked_up == [[[1] if ignored else [1, 2]]]
    assert merged((1, 3, 0), (2, 3, 0)) == ([] if ignored else [(1, 0, 3), (2, 1, 3)])
    assert looked_up == ([] if ignored else [[[1, 2]]])


def test_ignored_deletes_are_not_in_a_full_compactions_changelog(tmp_path: Path) -> None:
    """-D rows from a time before the option count neither as rows nor as changes."""
    context, _ = context_of(tmp_path, [("k", "INT NOT NULL"), ("v", "INT")], ["k"], {"ignore-delete": "true"})
    rows = [(1, 0, 5), (1, 3, 0), (2, 3, 0), (3, 0, 0), (4, 0, 5), (4, 2, 0), (5, 3, 5), (5, 0, 0)]
    made = [{"k": k, "v": i, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": kind} for i, (k, kind, _) in enumerate(rows)]
    levels = pa.array([level for _, _, level in rows], pa.int32())
    chunk = rows_of(context, made).append_column("_LEVEL", levels)
    spec = MergeSpec.of(context.schema)
    merged = compaction.FullMerge(spec, ("k", "v"), 5, ChangelogMaker(None)).merge(chunk)
    assert list(zip(*merged.rows.select(["k", "v"]).to_pydict().values(), strict=True)) == [
        (1, 0),
        (3, 3),
        (4, 5),
        (5, 7),
    ]
    assert merged.changelog is not None
    changes = merged.changelog.select(["k", "v", "_VALUE_KIND"]).to_pydict().values()
    assert list(zip(*changes, strict=True)) == [(3, 3, 0), (4, 4, 1), (4, 5, 2), (5, 7, 0)]
