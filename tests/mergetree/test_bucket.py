"""Buckets of a snapshot: which numbers new rows get, which buckets may be written, and what errors name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from keyed_tables import made, rows_of

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io import Store
from bitlake.io.local import LocalStore
from bitlake.mergetree import writer
from bitlake.mergetree.bucket import BucketReader, BucketState, Compaction, LiveBuckets, bucket_state
from bitlake.mergetree.writer import BucketWriter, prepare_rows, write_changes
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.paths import POSTPONE_BUCKET


@pytest.fixture
def entry(tmp_path: Path) -> ManifestEntry:
    table = made(tmp_path, **{"write-only": "true"})
    table.upsert(rows_of(range(3), "a"))
    (written,) = table._core.state().entries()
    return written


def test_numbers_begin_at_0_and_after_every_file(entry: ManifestEntry) -> None:
    assert (entry.file.min_sequence_number, entry.file.max_sequence_number) == (0, 2)
    later = replace(entry, file=replace(entry.file, max_sequence_number=7))
    for files, following in (((), 0), ((entry,), 3), ((later, entry), 8)):
        assert BucketState(EMPTY_ROW, 0, 1, files).next_sequence == following
        assert BucketState(EMPTY_ROW, 0, 1, files, reserved=100).next_sequence == following + 100


@pytest.mark.parametrize(("stored", "total"), [(1, 2), (2, 1), (2, 3), (1, 1), (2, 2), (-1, 2), (2, -1), (-2, 1)])
def test_a_bucket_of_another_number_of_buckets_is_not_written(stored: int, total: int) -> None:
    """Only fixed numbers can contradict each other."""
    slot = (EMPTY_ROW, 0)
    known = BucketState(*slot, stored)
    if stored != total and stored > 0 and total > 0:
        with pytest.raises(InvalidRequest, match=f"one of {stored} buckets.*'bucket' = '{total}'"):
            bucket_state({slot: known}, total, slot)
    else:
        assert bucket_state({slot: known}, total, slot) is known
    assert bucket_state({}, total, slot) == BucketState(*slot, total)


def test_a_compaction_is_something_if_any_part_is(entry: ManifestEntry) -> None:
    index: Any = object()
    assert not Compaction()
    for part in ({"before": (entry,)}, {"after": (entry,)}, {"changelog": (entry,)}, {"index": (index,)}):
        assert Compaction(**part)  # type: ignore[arg-type]
    upgraded = replace(entry, file=replace(entry.file, level=5))
    other = replace(entry, file=replace(entry.file, file_name="other"))
    assert Compaction((entry,), (upgraded, other), (entry,)).new_files == (other, entry)


def test_buckets_are_loaded_once(tmp_path: Path) -> None:
    table = made(tmp_path, bucket="2")
    table.upsert(rows_of(range(9), "a"))
    state = table._core.state()
    slots = [(EMPTY_ROW, 0), (EMPTY_ROW, 1)]
    assert not LiveBuckets(state, LiveBuckets.of(state).context, {}).lazy
    assert list(LiveBuckets.of(state).states) == slots
    for lazy in (True, False):
        fresh = LiveBuckets.of(state, fresh=True, lazy=lazy)
        fresh.load(slots)
        assert fresh.states == {}
    live = LiveBuckets.of(state, lazy=True, counts={EMPTY_ROW: 7})
    assert live.states == {}
    live.load(slots[:1])
    assert list(live.states) == slots[:1]
    (first,) = live.states.values()
    live.load(slots)
    assert list(live.states) == slots and live.states[slots[0]] is first
    live.load([*slots, (EMPTY_ROW, POSTPONE_BUCKET)])
    assert list(live.states) == slots
    assert live[b"another", 3].total_buckets == 2 and LiveBuckets.of(state)[EMPTY_ROW, 1].files
    with pytest.raises(InvalidRequest, match="one of 2 buckets"):
        live[EMPTY_ROW, 0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CorruptError("damaged", 3), "path"),
        (CorruptError("damaged", 3, path="elsewhere"), "elsewhere"),
        (NotFound("gone"), "gone (path)"),
        (NotFound("file path is gone"), "file path is gone"),
        (InvalidRequest("no"), "no (path)"),
        (StorageUnavailable("no disk"), "no disk"),
    ],
)
def test_errors_name_the_file_once(
    error: BitlakeError, expected: str, tmp_path: Path, entry: ManifestEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "other")
    reader = BucketReader(LiveBuckets.of(table._core.state()).context, LocalStore(), EMPTY_ROW, {})

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr("bitlake.mergetree.bucket.read_file", fail)
    path = reader.path(entry)
    if not isinstance(error, CorruptError) and "path" in str(error):
        monkeypatch.setattr(BucketReader, "path", lambda *_: "path")
        path = "path"
    with pytest.raises(type(error)) as raised:
        list(reader.read(entry, ("id",)))
    if isinstance(error, CorruptError):
        assert raised.value.path == (path if expected == "path" else expected)  # type: ignore[attr-defined]
    else:
        assert str(raised.value) == expected.replace("path", path)


@pytest.mark.parametrize(("more", "files"), [(0, 4), (1, 2)])
def test_a_run_is_written_when_its_rows_fill_the_buffer(more: int, files: int, tmp_path: Path) -> None:
    """Of all buckets together, or of the one that a task writes."""
    probe = made(tmp_path / "probe")
    state = probe._core.state()
    (rows,) = prepare_rows("t", state.schema, [rows_of(range(5), "a")])
    table = made(tmp_path, **{"write-buffer-size": f"{rows.nbytes + more} b", "write-only": "true"})
    state = table._core.state()
    (change,) = write_changes(state, [rows] * 4, "me")
    assert len(change.new_files) == files and change.rows == 20
    store: Store = LocalStore()
    with BucketWriter(LiveBuckets.of(state).context, store, BucketState(EMPTY_ROW, 0, 1)) as one:
        for _ in range(4):
            one.write(rows)
        assert len(one.finish(compact=False).new_files) == files


def test_row_kinds_of_several_batches(tmp_path: Path) -> None:
    schema = made(tmp_path).schema
    batches = [rows_of([1, 2], "a"), rows_of([3], "b"), rows_of([4, 5], "c")]
    kinds = ["+I", "-D", "+U", "-U", "+I"]
    found = [k for t in prepare_rows("t", schema, batches, kinds) for k in t.column("_VALUE_KIND").to_pylist()]
    assert found == [0, 3, 2, 1, 0]
    for wrong in (kinds[:4], [*kinds, "+I"]):
        with pytest.raises(InvalidRequest, match="row kinds"):
            list(prepare_rows("t", schema, batches, wrong))
    with pytest.raises(InvalidRequest, match="no column 'kind'"):
        list(writer.prepare_rows("t", schema, batches, "kind"))
