"""Every fault that was put into a table is found, under its code, in its file; and nothing else is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import verify_tables as made
from caches import forget
from verify_damage import (
    added_again,
    base_without_a_file,
    bounds,
    delete_of_absent,
    first_as,
    flipped_stats,
    gone_snapshot_2,
    in_bucket,
    in_other_partition,
    index_of,
    key,
    lacking_hash,
    lost_vector,
    manifest,
    mixed_buckets,
    moved_to_level,
    no_hash_entry,
    null_counts,
    of_another_table,
    other_hashes,
    other_index,
    other_index_of_other_rows,
    overlapping,
    rebuilt_index,
    renamed,
    set_column,
    shuffled,
    tag_of_nothing,
    twice,
    two_vectors,
    vector_file,
    without_index_manifest,
    without_schema,
    without_vectors,
    write,
)
from verify_tables import Patient

import bitlake
from bitlake.io.local import LocalStore
from bitlake.snapshot.partitions import PartitionReader
from bitlake.table.table import Table
from bitlake.tools.verify import CODES, Finding
from bitlake.tools.verify.data import DataTask, check_data_file
from bitlake.tools.verify.indexes import HashTask, KeyFile, VectorTask, check_hashes, check_vectors

TABLES: dict[str, Callable[[Path], Table]] = {
    "append": made.append,
    "embedded": made.embedded,
    "bucketed": made.bucketed,
    "keyed": made.keyed,
    "vectors": made.vectors,
    "layered": made.layered,
    "dynamic": made.dynamic,
    "avro": partial(made.keyed_of, "avro"),
    "orc": partial(made.keyed_of, "orc"),
}


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The lake of a table of :data:`TABLES`, made once."""
    known: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in known:
            known[name] = tmp_path_factory.mktemp(name) / "lake"
            TABLES[name](known[name])
        return known[name]

    return of


@dataclass(frozen=True)
class Fault:
    """One fault: ``damage`` does it to a table and says the name of the file that is to be found.

    ``also``: codes that the same damage earns besides.
    """

    name: str
    table: str
    code: str
    damage: Callable[[Patient], str]
    also: tuple[str, ...] = ()
    deep: bool = True


# fmt: off
FAULTS = [
    # Schemas.
    Fault("a schema is missing", "append", "schema-missing", lambda p: p.remove(p.root / "schema/schema-0")),
    Fault("a schema is cut", "append", "schema-unreadable", lambda p: p.cut(p.root / "schema/schema-0")),
    Fault("a schema of another number", "bucketed", "schema-wrong",
          lambda p: p.change_schema(lambda s: s.update(id=7))),
    Fault("a field id twice", "bucketed", "schema-wrong",
          lambda p: p.change_schema(lambda s: s["fields"][2].update(id=0))),
    Fault("files of a schema that never was", "bucketed", "schema-missing", lambda p: (p.change_file(p.data()[0].name,
          schema_id=5), "schema-5")[1]),
    # Snapshots.
    Fault("a snapshot is missing", "append", "snapshot-missing", gone_snapshot_2),
    Fault("a snapshot is cut", "append", "snapshot-unreadable", lambda p: p.cut(p.root / "snapshot/snapshot-1")),
    Fault("a snapshot has a byte flipped", "append", "snapshot-unreadable",
          lambda p: p.flip(p.root / "snapshot/snapshot-1", 0)),
    Fault("a snapshot of another number", "append", "snapshot-wrong", lambda p: p.change_snapshot(1, id=17)),
    Fault("an unknown kind of commit", "bucketed", "snapshot-wrong", lambda p: p.change_snapshot(commitKind="MAGIC")),
    Fault("an unknown operation", "bucketed", "snapshot-wrong", lambda p: p.change_snapshot(operation="WISH")),
    Fault("a wrong total", "bucketed", "snapshot-count-wrong", lambda p: p.change_snapshot(totalRecordCount=7)),
    Fault("a wrong delta", "bucketed", "snapshot-count-wrong", lambda p: p.change_snapshot(deltaRecordCount=7)),
    Fault("a wrong changelog count", "layered", "snapshot-count-wrong", lambda p: p.change_snapshot(1,
          changelogRecordCount=7)),
    # Tags, branches, hints, consumers, statistics.
    Fault("a tag is cut", "append", "tag-unreadable", lambda p: p.cut(p.root / "tag/tag-monday")),
    Fault("a tag's files are gone", "append", "list-missing", tag_of_nothing),
    Fault("a tag that is another snapshot", "append", "tag-differs", lambda p: write(p, "tag/tag-odd",
          json.dumps({**p.snapshot(1), "commitUser": "somebody"}))),
    Fault("a branch without schema", "append", "branch-wrong",
          without_schema, also=("schema-missing",)),
    Fault("LATEST is garbage", "append", "hint-wrong", lambda p: write(p, "snapshot/LATEST", "??")),
    Fault("LATEST is behind", "append", "hint-wrong", lambda p: write(p, "snapshot/LATEST", "1")),
    Fault("a fast-forward's journal is cut off", "append", "fast-forward-unfinished",
          lambda p: write(p, "snapshot/.fast-forward", "{")),
    Fault("LATEST is ahead", "append", "hint-ahead", lambda p: write(p, "snapshot/LATEST", "42")),
    Fault("EARLIEST hides a snapshot", "append", "hint-wrong", lambda p: write(p, "snapshot/EARLIEST", "2")),
    Fault("a consumer is garbage", "append", "consumer-unreadable", lambda p: write(p, "consumer/consumer-c", "{")),
    Fault("a consumer is ahead", "append", "consumer-wrong", lambda p: write(p, "consumer/consumer-c",
          '{"nextSnapshot": 77}')),
    Fault("statistics are missing", "append", "statistics-missing", lambda p: p.remove(p.file("statistics/*"))),
    Fault("statistics are cut", "append", "statistics-unreadable", lambda p: p.cut(p.file("statistics/*"))),
    # Manifest lists.
    Fault("a manifest list is missing", "bucketed", "list-missing", lambda p: p.remove(p.listed())),
    Fault("a manifest list is cut", "bucketed", "list-unreadable", lambda p: p.cut(p.listed(), 0.95),
          also=("list-size-wrong",)),
    Fault("a manifest list has a byte flipped", "bucketed", "list-unreadable", lambda p: p.flip(p.listed(), -5)),
    Fault("a manifest list's size is wrong", "bucketed", "list-size-wrong",
          lambda p: (p.change_snapshot(deltaManifestListSize=9), p.listed().name)[1]),
    Fault("a base list lacks files", "bucketed", "base-differs", base_without_a_file, also=("snapshot-count-wrong",)),
    # Manifests.
    Fault("a manifest is missing", "bucketed", "manifest-missing", lambda p: p.remove(manifest(p))),
    Fault("a manifest is cut", "bucketed", "manifest-unreadable", lambda p: p.cut(manifest(p), 0.9),
          also=("manifest-size-wrong",)),
    Fault("a manifest has a byte flipped", "bucketed", "manifest-unreadable", lambda p: p.flip(manifest(p), -40)),
    Fault("a manifest's counts are wrong", "bucketed", "manifest-count-wrong",
          lambda p: p.change_metas(lambda m: replace(m, num_added_files=m.num_added_files + 1))),
    Fault("a manifest's size is wrong", "bucketed", "manifest-size-wrong", lambda p: p.change_metas(lambda m: replace(m,
          file_size=m.file_size - 1))),
    Fault("a list leaves out buckets", "bucketed", "manifest-stats-wrong", lambda p: p.change_metas(lambda m: replace(m,
          max_bucket=0))),
    Fault("a list leaves out levels", "keyed", "manifest-stats-wrong", lambda p: (p.change_metas(lambda m: replace(m,
          min_level=5, max_level=5)), "manifest-")[1]),
    Fault("a list leaves out a partition", "append", "manifest-stats-wrong",
          lambda p: (p.change_metas(lambda m: replace(m, partition_stats=replace(m.partition_stats,
          max=m.partition_stats.min))), "manifest-")[1]),
    Fault("a file is added twice", "bucketed", "file-added-twice", lambda p: p.repeated(p.data()[0].name),
          also=("snapshot-count-wrong",)),
    Fault("a file is deleted that never was", "bucketed", "file-deleted-unknown", delete_of_absent,
          also=("snapshot-count-wrong",)),
    Fault("a file is added after it was deleted", "vectors", "file-added-again", added_again,
          also=("snapshot-count-wrong",)),
    # Data files.
    Fault("a data file is missing", "append", "data-missing", lambda p: p.remove(p.data()[0]), deep=False),
    Fault("a data file is cut", "append", "data-unreadable", lambda p: p.cut(p.data()[0]), also=("data-size-wrong",),
          deep=False),
    Fault("a data file's size is wrong", "append", "data-size-wrong", lambda p: p.change_file(p.data()[0].name,
          file_size=99), deep=False),
    Fault("a data file's footer is flipped", "bucketed", "data-unreadable", lambda p: p.flip(p.data()[0], -6)),
    Fault("a column is renamed in a data file", "bucketed", "data-unreadable",
          lambda p: p.replace_data(0, partial(renamed, "v", "w")), deep=False),
    Fault("a system column is renamed in a data file", "keyed", "data-unreadable",
          lambda p: p.replace_data(0, partial(renamed, "_VALUE_KIND", "_KIND")), deep=False),
    Fault("a data file's page is flipped", "bucketed", "data-unreadable", lambda p: p.flip(p.data()[0], 6)),
    Fault("a page's place is flipped", "bucketed", "page-index-wrong", lambda p: p.flip_page_index()),
    Fault("an Avro file is cut", "avro", "data-unreadable", lambda p: p.cut(p.data()[0]), also=("data-size-wrong",)),
    Fault("an Avro file has a byte flipped", "avro", "data-unreadable", lambda p: p.flip(p.data()[0], -60)),
    Fault("an ORC file is cut", "orc", "data-unreadable", lambda p: p.cut(p.data()[0]), also=("data-size-wrong",)),
    Fault("a row count is wrong", "embedded", "row-count-wrong", lambda p: p.change_file(p.data()[0].name,
          row_count=39), also=("snapshot-count-wrong", "index-unreadable")),
    Fault("a row count is wrong, seen without reading", "bucketed", "row-count-wrong",
          lambda p: p.change_file(p.data()[0].name, row_count=7), also=("snapshot-count-wrong",), deep=False),
    Fault("a count of deletes is wrong", "keyed", "delete-count-wrong", lambda p: p.change_file(p.data()[0].name,
          delete_row_count=77)),
    Fault("a smallest key is wrong", "keyed", "key-range-wrong", lambda p: p.change_file(p.data()[0].name,
          min_key=key(-5))),
    Fault("a largest key is wrong", "keyed", "key-range-wrong", lambda p: p.change_file(p.data()[0].name,
          max_key=key(500))),
    Fault("a range of sequence numbers is wrong", "keyed", "sequence-wrong", lambda p: p.change_file(p.data()[0].name,
          max_sequence_number=7)),
    Fault("rows are not in key order", "keyed", "key-order-wrong", lambda p: p.replace_data(0, shuffled),
          also=("key-range-wrong", "index-wrong")),
    Fault("a key is twice in a file", "keyed", "key-twice", lambda p: p.replace_data(0, twice), also=("index-wrong",)),
    Fault("a row kind that there is not", "keyed", "row-kind-wrong", lambda p: p.replace_data(0,
          set_column("_VALUE_KIND", first_as(9)))),
    Fault("statistics hide a value", "keyed", "stats-hide-values", lambda p: p.change_file(p.data()[0].name,
          **bounds(p.data()[1], "a", "b"))),
    Fault("statistics hide a value of the key", "keyed", "stats-hide-values", lambda p: p.change_file(p.data()[0].name,
          key_stats=replace(p.data()[1].file.key_stats, max=p.data()[1].file.key_stats.min))),
    Fault("statistics count NULLs wrongly", "keyed", "null-count-wrong", null_counts),
    Fault("statistics are damaged", "keyed", "stats-unreadable", flipped_stats),
    Fault("a NULL where there may be none", "layered", "null-not-allowed", lambda p: p.replace_data(0,
          lambda t: t.set_column(t.column_names.index("id"), "id", pa.array([None, *t.column("id").to_pylist()[1:]],
          pa.int64()))), also=("null-count-wrong", "index-wrong")),
    Fault("rows of another bucket", "bucketed", "bucket-wrong", lambda p: in_bucket(p, 1)),
    Fault("a bucket that there is not", "bucketed", "bucket-wrong", lambda p: in_bucket(p, 7)),
    Fault("numbers of buckets are mixed", "bucketed", "bucket-count-mixed", mixed_buckets, also=("bucket-wrong",)),
    Fault("rows of another partition", "append", "partition-wrong", in_other_partition),
    Fault("an append file at a level", "bucketed", "level-wrong", lambda p: p.change_file(p.data()[0].name, level=3)),
    Fault("a file at the wrong level", "layered", "levels-overlap", moved_to_level),
    Fault("files of a level overlap", "layered", "levels-overlap", overlapping, also=("key-range-wrong",)),
    Fault("a changelog file is missing", "layered", "data-missing", lambda p: p.remove(p.file("bucket-0/changelog-*"))),
    Fault("a file beside a data file is missing", "bucketed", "extra-file-missing",
          lambda p: (p.change_file(p.data()[0].name, extra_files=("x.lookup",)), "x.lookup")[1]),
    # File indexes.
    Fault("an index is missing", "append", "index-missing", lambda p: p.remove(index_of(p))),
    Fault("an index is cut", "append", "index-unreadable", lambda p: p.cut(index_of(p))),
    Fault("an index's header is flipped", "append", "index-unreadable", lambda p: p.flip(index_of(p), 3)),
    Fault("an index's body is flipped", "append", "index-unreadable", lambda p: p.flip(index_of(p), -3)),
    Fault("the index of another file", "append", "index-wrong", other_index),
    Fault("the index of a file of other rows", "append", "index-unreadable", other_index_of_other_rows),
    Fault("an embedded index is damaged", "embedded", "index-unreadable", lambda p: p.change_file(p.data()[0].name,
          embedded_index=(p.data()[1].file.embedded_index or b"")[:-1] + b"?")),
    Fault("a bitmap that lacks a value", "append", "index-wrong", rebuilt_index("bitmap", "v",
          pa.array(["value 0"] * 20), "STRING")),
    Fault("a bloom filter that lacks values", "append", "index-wrong", rebuilt_index("bloom-filter", "v",
          pa.array(["value 77"] * 20), "STRING")),
    Fault("a range-bitmap of other values", "append", "index-wrong", rebuilt_index("range-bitmap", "id",
          pa.array(range(100, 120)), "BIGINT")),
    Fault("a bsi of other values", "append", "index-wrong", rebuilt_index("bsi", "id", pa.array(range(100, 120)),
          "BIGINT")),
    Fault("an index of a column that is not there", "append", "index-unknown", rebuilt_index("bitmap", "nobody",
          pa.array(range(20)), "BIGINT")),
    Fault("two indexes of a file", "append", "index-twice", lambda p: p.change_file(p.data()[0].name,
          extra_files=(index_of(p).name, "b.index"))),
    # Table indexes.
    Fault("an index manifest is missing", "vectors", "index-manifest-missing",
          lambda p: p.remove(p.root / "manifest" / p.snapshot()["indexManifest"])),
    Fault("an index manifest is cut", "vectors", "index-manifest-unreadable",
          lambda p: p.cut(p.root / "manifest" / p.snapshot()["indexManifest"], 0.9)),
    Fault("an index manifest is flipped", "vectors", "index-manifest-unreadable",
          lambda p: p.flip(p.root / "manifest" / p.snapshot()["indexManifest"], -40)),
    Fault("vectors are missing", "append", "vectors-missing", lambda p: p.remove(p.index("DELETION_VECTORS")[0])),
    Fault("vectors are cut", "append", "vector-unreadable", lambda p: p.cut(p.index("DELETION_VECTORS")[0]),
          also=("vectors-size-wrong",)),
    Fault("vectors of another version", "append", "vectors-unreadable", lambda p: p.flip(p.index("DELETION_VECTORS")[0],
          0)),
    Fault("a vector's bytes are flipped", "append", "vector-checksum-wrong",
          lambda p: p.flip(p.index("DELETION_VECTORS")[0], 12)),
    Fault("a vector's checksum is flipped", "append", "vector-checksum-wrong",
          lambda p: p.flip(p.index("DELETION_VECTORS")[0], -1)),
    Fault("a vector is out of range", "vectors", "vector-out-of-range", lambda p: vector_file(p, [1, 5000]),
          also=("vector-lost",)),
    Fault("a vector's cardinality is wrong", "vectors", "vector-cardinality-wrong", lambda p: vector_file(p, [1, 2],
          cardinality=9), also=("vector-lost",)),
    Fault("a vector of a file that is not there", "vectors", "vector-of-absent-file", lambda p: vector_file(p, [1],
          name="data-of-another-table-0.parquet"), also=("key-in-two-files", "vector-lost")),
    Fault("the vectors of another table", "append", "vector-unreadable", of_another_table),
    Fault("the number of vectors is wrong", "append", "vectors-count-wrong",
          lambda p: p.change_index(lambda e: replace(e, row_count=9))),
    Fault("the size of vectors is wrong", "append", "vectors-size-wrong",
          lambda p: p.change_index(lambda e: replace(e, file_size=e.file_size + 9))),
    Fault("a vector under another bucket", "vectors", "vector-misplaced",
          lambda p: p.change_index(lambda e: replace(e, bucket=1 - e.bucket)) and "index-"),
    Fault("a data file has two vectors", "append", "vector-twice", two_vectors),
    Fault("a vector is lost", "vectors", "key-in-two-files", lost_vector, also=("vector-lost",)),
    Fault("an index manifest is left out", "append", "vector-lost", without_index_manifest),
    Fault("a vector is left out", "append", "vector-lost", without_vectors),
    Fault("vectors are switched off by damage", "append", "vectors-not-applied",
          lambda p: p.change_schema(lambda s: s["options"].pop("deletion-vectors.enabled")) and "snapshot-"),
    Fault("a HASH index is missing", "dynamic", "hash-missing", lambda p: p.remove(p.index("HASH")[0])),
    Fault("a HASH index is cut", "dynamic", "hash-unreadable", lambda p: p.cut(p.index("HASH")[0], 0.9)),
    Fault("a HASH index lacks a key", "dynamic", "hash-incomplete", lacking_hash),
    Fault("a HASH index has another key", "dynamic", "hash-incomplete", other_hashes),
    Fault("a bucket has no HASH index", "dynamic", "hash-missing", no_hash_entry),
]
# fmt: on


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "-"))
def test_every_fault_is_found_and_named(fault: Fault, templates: Callable[[str], Path], tmp_path: Path) -> None:
    root = tmp_path / "lake"
    shutil.copytree(templates(fault.table), root)
    forget()
    table = made.opened(root)
    file = fault.damage(Patient(table))
    forget()
    report = table.maintenance.verify(deep=fault.deep)
    named = [f for f in report.findings if f.code == fault.code and file in f.path.rsplit("/", 1)[-1]]
    assert named, f"{fault.code} of {file} is not among\n{report.text()}"
    assert set(report.codes) == {fault.code, *fault.also}, report.text()
    assert report.ok == all(CODES[c].severity == "warning" for c in report.codes)
    assert named[0].what in report.text()
    assert json.loads(json.dumps(report.to_dict()))["findings"]


def test_every_code_is_earned_by_a_fault() -> None:
    assert set(CODES) == {f.code for f in FAULTS}


@pytest.mark.exhaustive
def test_each_byte_of_what_has_a_checksum(templates: Callable[[str], Path], tmp_path: Path) -> None:
    """Flip each byte of a file index, of a file of vectors and of a HASH index in turn: none goes unnoticed."""
    shutil.copytree(templates("append"), tmp_path / "append")
    shutil.copytree(templates("dynamic"), tmp_path / "dynamic")
    forget()
    p, d = (Patient(made.opened(tmp_path / name)) for name in ("append", "dynamic"))
    store, state = LocalStore(), p.table._core.state()
    path, entry = p.data()
    values = PartitionReader(state.schema, state.paths).values(entry.partition)
    data = DataTask(str(path), (entry,), state.schema, values, {})
    vectors, listed = p.index("DELETION_VECTORS")
    vector = VectorTask(str(vectors), listed, {r.data_file: 40 for r in listed.ranges or ()})
    hashes, held = d.index("HASH")
    files = {e.file.file_name: d.path(e) for e in d.table._core.state().entries() if e.bucket == held.bucket}
    keys = {name: KeyFile(str(file), d.table.schema) for name, file in files.items()}
    hashed = HashTask(((str(hashes), held, frozenset(keys)),), keys)
    checks: list[tuple[Path, Callable[[], Sequence[Finding]]]] = [
        (index_of(p), lambda: check_data_file(store, data).findings),
        (vectors, lambda: check_vectors(store, vector)),
        (hashes, lambda: check_hashes(store, hashed)),
    ]
    for file, check in checks:
        whole = file.read_bytes()
        assert not check()
        # Without the mark of its checksums an index is one that never had any: what it says is what it said.
        mark = whole.find(b"BLx1")
        for at in set(range(len(whole))) - (set(range(mark, mark + 4)) if mark >= 0 else set()):
            Patient.flip(file, at)
            assert check(), f"byte {at} of {file.name}"
            file.write_bytes(whole)


def test_column_chunks_of_wide_files_are_checked(tmp_path: Path) -> None:
    """The column chunks of more than 50 columns are decoded only when they are asked for."""
    schema = pa.schema([(f"c{i}", pa.int32()) for i in range(60)])
    table = bitlake.connect(str(tmp_path)).create_table("t", schema)
    table.append(pa.table([[1, 2]] * 60, schema=schema))
    (path,) = Path(table.path).rglob("*.parquet")
    data = path.read_bytes()
    at = data.rindex(b"\x1c\x15\x02\x19")  # the metadata of the last chunk begins with its type, INT32
    path.write_bytes(data[: at + 2] + b"\x04" + data[at + 3 :])
    findings = table.maintenance.verify().findings
    assert [(f.code, f.path) for f in findings] == [("data-unreadable", str(path))]
    assert "column 'c59': chunk and schema differ in physical type" in findings[0].what
