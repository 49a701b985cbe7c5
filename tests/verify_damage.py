"""Damage done to tables on purpose that takes more than a line; each function says which file it is that is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from verify_tables import Patient

from bitlake.codec.binary_row import decode_row, encode_row_with_arity
from bitlake.fileindex.registry import IndexBuilder, IndexSpec
from bitlake.metadata.index_manifest import decode_index_manifest, encode_index_manifest
from bitlake.metadata.manifest import (
    EntryKind,
    ManifestEntry,
    decode_manifest,
    decode_manifest_list,
    encode_manifest_list,
)
from bitlake.tableindex.deletion_vectors import DeletionVector, encode_index_file
from bitlake.types.datatypes import DataField, parse_type


def key(number: int) -> bytes:
    return encode_row_with_arity([parse_type("BIGINT")], [number])


def bounds(entry: ManifestEntry, low: object, high: object) -> dict[str, object]:
    """Other bounds of ``v`` in a table whose statistics cover id, v, n."""
    types = [parse_type(t) for t in ("BIGINT", "STRING", "INT")]
    stats = entry.file.value_stats
    lows, highs = list(decode_row(types, stats.min)), list(decode_row(types, stats.max))
    lows[1], highs[1] = low, high
    made_ = replace(stats, min=encode_row_with_arity(types, lows), max=encode_row_with_arity(types, highs))
    return {"value_stats": made_}


def other_index(p: Patient) -> str:
    """The index of another file of as many rows."""
    one, first = p.data(0, lambda e: e.file.row_count == 20)
    two, second = p.data(1, lambda e: e.file.row_count == 20)
    a, b = (path.parent / e.file.extra_files[0] for path, e in ((one, first), (two, second)))
    a.write_bytes(b.read_bytes())
    return a.name


def other_index_of_other_rows(p: Patient) -> str:
    one, first = p.data(0, lambda e: e.file.row_count == 20)
    two, second = p.data(0, lambda e: e.file.row_count == 10)
    a, b = (path.parent / e.file.extra_files[0] for path, e in ((one, first), (two, second)))
    a.write_bytes(b.read_bytes())
    return a.name


def index_of(p: Patient, which: int = 0) -> Path:
    path, entry = p.data(which)
    return path.parent / entry.file.extra_files[0]


def rebuilt_index(index_type: str, column: str, values: pa.Array, type_: str) -> Callable[[Patient], str]:
    """An index that is sound in itself, checksums and all, of other values than the file's."""

    def damage(p: Patient) -> str:
        path, _ = p.data(0, lambda e: e.file.row_count == 20)
        builder = IndexBuilder([IndexSpec(column, index_type, {})], [DataField(0, column, parse_type(type_))])
        builder.add(pa.table({column: values}))
        index = path.parent / f"{path.name}.index"
        index.write_bytes(builder.finish(checksums=True))
        return index.name

    return damage


def vector_file(p: Patient, positions: list[int], *, cardinality: int | None = None, name: str | None = None) -> str:
    """A data file's vector is another one, whole and with a right checksum."""
    path, entry = p.index("DELETION_VECTORS")
    assert entry.ranges
    file = name or entry.ranges[0].data_file
    data, places = encode_index_file({file: DeletionVector.of(np.array(positions, np.int64))})
    path.write_bytes(data)
    places = tuple(replace(r, cardinality=r.cardinality if cardinality is None else cardinality) for r in places)
    p.change_index(
        lambda e: replace(e, ranges=places, file_size=len(data), row_count=1) if e.file_name == path.name else e
    )
    return path.name


def lost_vector(p: Patient) -> str:
    """The old rows of a data file come back, beside the new ones: its vector is gone, and nobody says it was there."""
    path, _ = p.index("DELETION_VECTORS")
    path.write_bytes(b"\1")
    p.change_index(lambda e: replace(e, ranges=(), row_count=0, file_size=1) if e.file_name == path.name else e)
    return "data-"


def without_index_manifest(p: Patient) -> str:
    """The rows that a snapshot before deleted come back: the last one names no index manifest."""
    p.table.delete("id = 5")
    return p.change_snapshot(indexManifest=None)


def without_vectors(p: Patient) -> str:
    """The same, of an index manifest that lists no vectors."""
    p.table.delete("id = 5")
    path = p.root / "manifest" / p.snapshot()["indexManifest"]
    path.write_bytes(encode_index_manifest([]))
    return f"snapshot-{p.last()}"


def of_another_table(p: Patient) -> str:
    """The deletion vectors of another table: a file of the right name, with other frames in it."""
    path, entry = p.index("DELETION_VECTORS")
    names = [r.data_file for r in entry.ranges or ()]
    data, _ = encode_index_file({n: DeletionVector.of(np.arange(50, 90)) for n in names})
    path.write_bytes(data.ljust(entry.file_size, b"\0")[: max(entry.file_size, len(data))])
    return path.name


def overlapping(p: Patient) -> str:
    """A file's key range reaches into the next one's, as its manifest says."""
    entries = sorted(
        (e for e in p.table._core.state().entries() if e.file.level > 0), key=lambda e: e.file.min_key[-8:][::-1]
    )
    first, second = entries[0], entries[1]
    return p.change_file(first.file.file_name, max_key=second.file.min_key)


def moved_to_level(p: Patient) -> str:
    """A file of level 0, whose keys are also in the files of a level below, is said to be at that level."""
    level = max(e.file.level for e in p.table._core.state().entries())
    _, entry = p.data(0, lambda e: e.file.level == 0)
    p.change_file(entry.file.file_name, level=level)
    return "data-"


def renamed(old: str, new: str, rows: pa.Table) -> pa.Table:
    """The rows with another name of one column."""
    return rows.rename_columns([new if name == old else name for name in rows.column_names])


def shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array([1, 0, *range(2, table.num_rows)]))


def twice(table: pa.Table) -> pa.Table:
    """The second row is the first one again."""
    return table.take(pa.array([0, 0, *range(2, table.num_rows)]))


def set_column(name: str, change: Callable[[pa.ChunkedArray], pa.Array]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, table.schema.field(name), change(table.column(name)))

    return changed


def first_as(value: object) -> Callable[[pa.ChunkedArray], pa.Array]:
    return lambda c: pa.array([value, *c.to_pylist()[1:]], c.type)


def delete_of_absent(p: Patient) -> str:
    _, entry = p.data()
    gone = replace(entry, kind=EntryKind.DELETE, file=replace(entry.file, file_name="data-never-there-0.parquet"))

    def change(entries: list[ManifestEntry]) -> list[ManifestEntry]:
        return [gone, *entries] if entry in entries else entries

    p.change_manifests(change)
    return gone.file.file_name


def added_again(p: Patient) -> str:
    """What an older snapshot deleted is added by the last one: its delta's ADD has no effect."""
    gone: list[ManifestEntry] = []
    for meta in decode_manifest_list(p.listed("base").read_bytes()):
        entries = decode_manifest((p.root / "manifest" / meta.file_name).read_bytes())
        gone += [e for e in entries if e.kind is EntryKind.DELETE]
    back = replace(gone[0], kind=EntryKind.ADD)
    last = decode_manifest_list(p.listed().read_bytes())[0].file_name
    mine = decode_manifest((p.root / "manifest" / last).read_bytes())
    p.change_manifests(lambda entries: [*entries, back] if entries == mine else entries)
    return back.file.file_name


def two_vectors(p: Patient) -> str:
    path, entry = p.index("DELETION_VECTORS")
    other = replace(entry, file_name="index-twice-0")
    shutil.copy(path, path.parent / other.file_name)
    index = p.root / "manifest" / p.snapshot()["indexManifest"]
    index.write_bytes(encode_index_manifest([*decode_index_manifest(index.read_bytes()), other]))
    return other.file_name


def lacking_hash(p: Patient) -> str:
    path, _ = p.index("HASH")
    data = path.read_bytes()[4:]
    path.write_bytes(data)
    p.change_index(
        lambda e: replace(e, file_size=len(data), row_count=len(data) // 4) if e.file_name == path.name else e
    )
    return path.name


def other_hashes(p: Patient) -> str:
    path, _ = p.index("HASH", 0)
    data = np.frombuffer(path.read_bytes(), ">i4").copy()
    data[0] ^= 1
    path.write_bytes(data.tobytes())
    return path.name


def no_hash_entry(p: Patient) -> str:
    path = p.root / "manifest" / p.snapshot()["indexManifest"]
    path.write_bytes(encode_index_manifest(decode_index_manifest(path.read_bytes())[1:]))
    return "bucket-"


def in_bucket(p: Patient, bucket: int) -> str:
    path, _ = p.data(0, lambda e: e.bucket == 0)
    folder = p.root / f"bucket-{bucket}"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / path.name)
    return p.change_entries(path.name, lambda e: replace(e, bucket=bucket))


def in_other_partition(p: Patient) -> str:
    path, entry = p.data(0)
    other = encode_row_with_arity([parse_type("STRING")], ["p1"])
    assert entry.partition != other
    for f in (path, path.parent / entry.file.extra_files[0]):
        shutil.copy(f, p.root / "p=p1" / "bucket-0" / f.name)
    p.change_entries(path.name, lambda e: replace(e, partition=other))
    return path.name


def base_without_a_file(p: Patient) -> str:
    """The last snapshot's base list leaves out the files of the first."""
    path = p.listed("base")
    path.write_bytes(encode_manifest_list(decode_manifest_list(path.read_bytes())[1:]))
    p.resize()
    return path.name


def tag_of_nothing(p: Patient) -> str:
    """A tag whose snapshot's files are gone."""
    path = p.root / "tag/tag-old"
    found = {**p.snapshot(1), "baseManifestList": "manifest-list-gone-0", "id": 99}
    path.write_text(json.dumps(found))
    return "manifest-list-gone-0"


def flipped_stats(p: Patient) -> str:
    path, entry = p.data()
    stats = replace(entry.file.value_stats, min=entry.file.value_stats.min[:-9])
    return p.change_file(path.name, value_stats=stats)


def null_counts(p: Patient) -> str:
    path, entry = p.data()
    counts = entry.file.value_stats.null_counts or ()
    stats = replace(entry.file.value_stats, null_counts=(counts[0], (counts[1] or 0) + 1, *counts[2:]))
    return p.change_file(path.name, value_stats=stats)


def mixed_buckets(p: Patient) -> str:
    path, _ = p.data()
    p.change_entries(path.name, lambda e: replace(e, total_buckets=4))
    return "data-"


def gone_snapshot_2(p: Patient) -> str:
    return p.remove(p.root / "snapshot/snapshot-2")


def without_schema(p: Patient) -> str:
    shutil.rmtree(p.root / "branch/branch-dev/schema")
    return "branch-dev"


def write(p: Patient, name: str, text: str) -> str:
    (p.root / name).parent.mkdir(exist_ok=True)
    (p.root / name).write_text(text)
    return name.rsplit("/", 1)[1]


def manifest(p: Patient) -> Path:
    return p.root / "manifest" / decode_manifest_list(p.listed("base").read_bytes())[0].file_name
