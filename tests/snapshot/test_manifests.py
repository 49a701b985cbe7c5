"""Manifests of a commit: what their list says of them, when they are merged, and which partitions they may hold."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from caches import forget
from long import every, long
from store_wrappers import CountingStore

from bitlake.codec import avro
from bitlake.codec.binary_row import EMPTY_ROW, decode_row, encode_row_with_arity
from bitlake.errors import CorruptError
from bitlake.io.local import LocalStore
from bitlake.metadata.manifest import (
    EMPTY_STATS,
    DataFileMeta,
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    RecordDecoder,
)
from bitlake.metadata.options import Options
from bitlake.metadata.paths import TablePaths
from bitlake.snapshot import manifests
from bitlake.snapshot.file_columns import LiveFiles
from bitlake.snapshot.manifests import (
    ManifestWriter,
    PartitionSet,
    manifest_meta,
    partition_stats,
    read_manifest,
    read_manifests,
)
from bitlake.snapshot.table_files import TableFiles
from bitlake.types import parse_type

STORE = LocalStore()
INT = [parse_type("INT")]


def entry(
    name: str, partition: int | None = 0, *, kind: EntryKind = EntryKind.ADD, bucket: int = 0, **more: Any
) -> ManifestEntry:
    file = DataFileMeta(name, 1, 10, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 0, 0, 0)
    return ManifestEntry(kind, encode_row_with_arity(INT, [partition]), bucket, 3, replace(file, **more))


def writer(root: Path, **options: str) -> ManifestWriter:
    named = {f"manifest.{k.replace('_', '-')}": v for k, v in options.items()}
    return ManifestWriter(TableFiles(STORE, TablePaths(str(root))), INT, Options(named))


def entries_of(root: Path, metas: list[ManifestFileMeta]) -> list[list[ManifestEntry]]:
    return [list(e) for e in read_manifests(TableFiles(STORE, TablePaths(str(root))), metas)]


def test_memory_of_many_files_is_estimated_from_some() -> None:
    """From files everywhere in the list: those of the first commit may have no embedded index."""
    plain, indexed = (
        LiveFiles([entry(f"{index}{i}", embedded_index=index) for i in range(640)]) for index in (b"", b"x" * 9000)
    )
    mixed = LiveFiles([*plain, *indexed])
    assert indexed.memory == plain.memory + 640 * 9000
    assert mixed.memory == pytest.approx(plain.memory + indexed.memory, rel=0.05)


def test_manifests_are_cached_when_they_are_read_whole(tmp_path: Path) -> None:
    """Of some partitions entries are read each time, unless the whole manifest is cached."""
    files = [entry("a", 1), entry("b", 2)]
    (meta,) = writer(tmp_path).write(files)
    store = CountingStore(LocalStore())
    table = TableFiles(store, TablePaths(str(tmp_path)))
    forget()
    for reads in (1, 2):
        some = read_manifest(table, meta.file_name, frozenset([files[0].partition]))
        assert files[0] in some and set(some) <= set(files) and store.calls["read"] == reads
    for partitions in (None, frozenset([files[1].partition]), None, frozenset[bytes]()):
        assert read_manifest(table, meta.file_name, partitions) == tuple(files) and store.calls["read"] == 3


def test_a_list_describes_its_manifests() -> None:
    some = [
        entry("a", 3, bucket=2, level=5, schema_id=1, first_row_id=100, row_count=10),
        entry("b", 1, bucket=4, level=0, schema_id=7, first_row_id=50, row_count=20, kind=EntryKind.DELETE),
        entry("c", 2, bucket=0, level=3, schema_id=2, first_row_id=70, row_count=40),
    ]
    made = manifest_meta("m", 99, some, INT)
    assert made == ManifestFileMeta("m", 99, 2, 1, made.partition_stats, 7, 0, 4, 0, 5, 50, 109)
    stats = made.partition_stats
    assert (decode_row(INT, stats.min), decode_row(INT, stats.max), stats.null_counts) == ((1,), (3,), (0,))
    untracked = manifest_meta("m", 99, [*some, entry("d", None)], INT)
    assert (untracked.min_row_id, untracked.max_row_id) == (None, None)
    assert untracked.partition_stats.null_counts == (1,)
    assert manifest_meta("m", 99, some, []).partition_stats == EMPTY_STATS


def test_bounds_of_partitions_count_nulls_and_order_floats_as_java() -> None:
    kinds = [parse_type("DOUBLE"), parse_type("STRING")]
    rows = [(math.nan, "b"), (-0.0, None), (0.0, "a"), (1.5, None), (-0.0, None)]
    for some in (rows, rows[::-1]):
        stats = partition_stats([encode_row_with_arity(kinds, r) for r in some], kinds)
        low, high = decode_row(kinds, stats.min), decode_row(kinds, stats.max)
        assert math.copysign(1, low[0]) == -1 and low[0] == 0 and math.isnan(high[0])
        assert (low[1], high[1], stats.null_counts) == ("a", "b", (0, 3))
    zeros = partition_stats([encode_row_with_arity(kinds[:1], [z]) for z in (-0.0, 0.0)], kinds[:1])
    assert math.copysign(1, decode_row(kinds[:1], zeros.max)[0]) == 1


def test_a_set_of_partitions_meets_exactly_the_bounds_that_hold_one() -> None:
    values = (None, 1, 2, 3)
    for size in (1, 2):
        for held in product(values, repeat=size):
            meta = manifest_meta("m", 1, [entry("f", v) for v in held], INT)
            known = [v for v in held if v is not None]
            for asked in values:
                made = PartitionSet([encode_row_with_arity(INT, [asked])], INT)
                within = None in held if asked is None else bool(known) and min(known) <= asked <= max(known)
                assert made.meets(meta) == within, (held, asked)
                uncounted = replace(meta, partition_stats=replace(meta.partition_stats, null_counts=None))
                assert made.meets(uncounted) == (asked is None or within)
    assert not PartitionSet([], INT).meets(manifest_meta("m", 1, [entry("f", 1)], INT))
    one = PartitionSet([encode_row_with_arity(INT, [1])], INT)
    assert one.meets(replace(manifest_meta("m", 1, [entry("f", 2)], INT), partition_stats=EMPTY_STATS))
    # Older versions of pypaimon record bounds of NULL, and no NULLs.
    unbounded = manifest_meta("m", 1, [entry("f", None)], INT)
    unbounded = replace(unbounded, partition_stats=replace(unbounded.partition_stats, null_counts=(0,)))
    assert one.meets(unbounded) and PartitionSet([encode_row_with_arity(INT, [None])], INT).meets(unbounded)
    assert PartitionSet([EMPTY_ROW], []).meets(manifest_meta("m", 1, [entry("f", 1)], []))
    assert not PartitionSet([], []).meets(manifest_meta("m", 1, [entry("f", 1)], []))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_small_manifests_are_merged_from_the_least_number_on(tmp_path: Path, count: int) -> None:
    made = writer(tmp_path, merge_min_count="3")
    metas = [meta for i in range(count) for meta in made.write([entry(f"f{i}", i)])]
    merged = made.merge(metas)
    assert len(merged) == (1 if count >= 3 else count)
    names = [e.file.file_name for held in entries_of(tmp_path, merged) for e in held]
    assert names == [f"f{i}" for i in range(count)]
    if count < 3:
        assert merged == metas


def test_manifests_are_merged_as_soon_as_they_reach_the_target_together(tmp_path: Path) -> None:
    plain = writer(tmp_path)
    metas = [meta for i in range(5) for meta in plain.write([entry(f"f{i}", 7)])]
    size = metas[0].file_size
    assert {m.file_size for m in metas} == {size}
    for target, runs in ((2 * size, [2, 2, 1]), (2 * size + 1, [3, 1, 1]), (3 * size, [3, 1, 1]), (size, [1] * 5)):
        merged = writer(tmp_path, target_file_size=f"{target} b", merge_min_count="9").merge(metas)
        assert [[e.file.file_name for e in held] for held in entries_of(tmp_path, merged)] == [
            [f"f{i}" for i in range(sum(runs[:n]), sum(runs[: n + 1]))] for n in range(len(runs))
        ]


def test_a_manifest_of_very_many_entries_is_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries may compress so well that a target size holds hundreds of thousands, all to be read for one partition."""
    monkeypatch.setattr(manifests, "MOST_ENTRIES", 10)
    files = [entry(f"f{i}", i) for i in range(25)]
    metas = writer(tmp_path).write(files)
    assert entries_of(tmp_path, metas) == [files[:10], files[10:20], files[20:]]
    more = [writer(tmp_path).write([entry(f"g{i}", i)])[0] for i in range(5)]
    merging = writer(tmp_path, full_compaction_threshold_size="1 gb", merge_min_count="100")
    merged = merging.merge([*metas, *more])
    assert merged[:2] == metas[:2], "the full ones stay"
    assert [m.num_added_files for m in merged] == [10, 10, 10], "a run of ten entries becomes one manifest"
    assert [e for es in entries_of(tmp_path, merged) for e in es] == [
        e for es in entries_of(tmp_path, [*metas, *more]) for e in es
    ]
    full = writer(tmp_path, full_compaction_threshold_size="1 b").merge([*metas, *more])
    assert full[:2] == metas[:2] and [m.num_added_files for m in full] == [10, 10, 10]


@pytest.mark.parametrize("seed", every(3, [*range(10), *map(long, range(10, 30))]))
def test_a_large_manifest_in_a_run_is_joined_as_it_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same entries in the same order as when all are decoded, without reading most blocks' entries."""
    draw = random.Random(seed)
    monkeypatch.setattr(avro, "BLOCK_BYTES", 2_000)
    made = writer(tmp_path, full_compaction_threshold_size="1 gb", merge_min_count="2")
    files = [entry(f"f{i}", None if i < 40 else i // 40, bucket=draw.randrange(3)) for i in range(400)]
    metas = made.write(files[:300])
    gone = draw.sample(files, draw.choice((0, 2, 40)))
    never_added = entry("never added", 3, kind=EntryKind.DELETE)
    for e in [*files[300:], *(replace(e, kind=EntryKind.DELETE) for e in gone), never_added]:
        metas += made.write([e])
    (expected,) = made.merge(metas)
    decoded: list[int] = []

    class Counting(RecordDecoder):
        def entries(self, data: bytes, count: int) -> list[ManifestEntry]:
            decoded.append(count)
            return super().entries(data, count)

    monkeypatch.setattr(manifests, "RecordDecoder", Counting)
    monkeypatch.setattr(manifests, "_LARGE", 100)
    (joined,) = made.merge(metas)
    assert entries_of(tmp_path, [joined]) == entries_of(tmp_path, [expected])
    assert (joined.num_added_files, joined.num_deleted_files) == (400 - len(gone), 1)
    assert (joined.num_added_files, joined.num_deleted_files) == (expected.num_added_files, expected.num_deleted_files)
    assert 0 < sum(decoded) < (200 if len(gone) < 40 else 301)
    whole = manifest_meta("m", 1, [*files, *gone, never_added], INT)
    assert replace(joined, partition_stats=whole.partition_stats, **ALIKE) == replace(whole, **ALIKE)
    nulls = expected.partition_stats.null_counts
    assert joined.partition_stats == replace(whole.partition_stats, null_counts=nulls), "bounds may be wider"


ALIKE = {"file_name": "", "file_size": 0, "num_added_files": 0, "num_deleted_files": 0}


def test_statistics_without_the_nulls_of_a_manifest_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions of pypaimon record no NULLs of a manifest whose partitions are all NULL."""
    monkeypatch.setattr(manifests, "_LARGE", 100)
    made = writer(tmp_path, merge_min_count="2")
    metas = [
        m for value, n in ((1, 300), (None, 1)) for m in made.write([entry(f"{value}{i}", value) for i in range(n)])
    ]
    metas[1] = replace(metas[1], partition_stats=replace(metas[1].partition_stats, null_counts=(0,)))
    assert PartitionSet([encode_row_with_arity(INT, [None])], INT).meets(metas[1])
    (merged,) = made.merge(metas)
    assert merged.partition_stats.null_counts == (1,)
    assert PartitionSet([encode_row_with_arity(INT, [None])], INT).meets(merged)


def test_nulls_of_cancelled_entries_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many NULLs as entries would mean that all entries are NULL: `p = 1` would find no file."""
    monkeypatch.setattr(manifests, "_LARGE", 100)
    made = writer(tmp_path, merge_min_count="2")
    metas = made.write([entry(f"one{i}", 1) for i in range(300)])
    nulls = [entry(f"null{i}", None) for i in range(200)]
    for e in (*nulls, *(replace(e, kind=EntryKind.DELETE) for e in nulls)):
        metas += made.write([e])
    (merged,) = made.merge(metas)
    assert (merged.num_added_files, merged.num_deleted_files) == (300, 0)
    assert merged.partition_stats == manifest_meta("m", 1, [entry("one", 1)], INT).partition_stats


def test_a_run_of_which_nothing_remains_becomes_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_LARGE", 100)
    made = writer(tmp_path, merge_min_count="2")
    files = [entry(f"f{i}", 1) for i in range(200)]
    metas = [*made.write(files), *made.write([replace(e, kind=EntryKind.DELETE) for e in files])]
    assert made.merge(metas) == []


@pytest.mark.parametrize("checksum", [True, False])
def test_a_block_without_a_checksum_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksum: bool) -> None:
    monkeypatch.setattr(manifests, "_LARGE", 100)
    compress = avro._compress
    made = writer(tmp_path, merge_min_count="2")
    with monkeypatch.context() as context:
        if not checksum:
            context.setattr(avro, "_compress", lambda data, codec, level: avro.zstd.compress(data, level))
        metas = made.write([entry(f"f{i}", 1) for i in range(200)])
    metas += made.write([entry("g", 1)])
    blocks: list[bytes] = []
    monkeypatch.setattr(avro, "_compress", lambda data, *more: blocks.append(data) or compress(data, *more))
    (merged,) = made.merge(metas)
    assert [e.file.file_name for e in entries_of(tmp_path, [merged])[0]] == [*(f"f{i}" for i in range(200)), "g"]
    assert any(b"f199" in block for block in blocks) == (not checksum), "compressed again"


def test_a_large_manifest_that_is_damaged_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_LARGE", 100)
    made = writer(tmp_path, merge_min_count="2")
    metas = [meta for part in (range(2000), [2000]) for meta in made.write([entry(f"f{i}", i) for i in part])]
    path = tmp_path / "manifest" / metas[0].file_name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=metas[0].file_name):
        made.merge(metas)


def test_a_full_merge_rewrites_what_deletes_can_touch(tmp_path: Path) -> None:
    """From the threshold of size on; a large manifest of other partitions stays as it is."""
    plain = writer(tmp_path)
    (big_here,) = plain.write([entry("here", 1), entry("stays", 1), *(entry(f"h{i}", 1) for i in range(400))])
    (big_there,) = plain.write([entry(f"t{i}", 2) for i in range(400)])
    (small,) = plain.write([entry("gone", 1, kind=EntryKind.DELETE), entry("here", 1, kind=EntryKind.DELETE)])
    target = min(big_here.file_size, big_there.file_size)
    assert small.file_size < target
    metas = [big_here, big_there, small]
    for threshold, full in ((small.file_size, True), (small.file_size + 1, False)):
        options = {"target_file_size": f"{target} b", "full_compaction_threshold_size": f"{threshold} b"}
        merged = writer(tmp_path, **options).merge(metas)
        held = [e for entries in entries_of(tmp_path, merged) for e in entries]
        names = {e.file.file_name for e in held if e.kind is EntryKind.ADD}
        assert (big_here in merged) == (not full) and big_there in merged
        assert ("here" in names) == (not full) and "stays" in names and "t0" in names and "h399" in names
        assert any(e.kind is EntryKind.DELETE for e in held) == (not full)


def test_what_a_commit_wrote_is_deleted_back_to_a_mark(tmp_path: Path) -> None:
    made = writer(tmp_path)
    (first,) = made.write([entry("a")])
    mark = made.mark()
    (second,) = made.write([entry("b")])
    name, size = made.write_list([first, second])
    folder = tmp_path / "manifest"
    assert (folder / name).stat().st_size == size
    assert {p.name for p in folder.iterdir()} == {first.file_name, second.file_name, name}
    made.discard(mark)
    assert [p.name for p in folder.iterdir()] == [first.file_name]
    held = made.release()
    made.discard()
    assert [p.name for p in folder.iterdir()] == [first.file_name] and made.mark() == 0
    made.take_back(held)
    made.discard()
    assert list(folder.iterdir()) == []
