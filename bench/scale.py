"""What do plans, commits and maintenance of a table of very many files cost?

    python -m bench.scale [FILES [PARTITIONS]] [--s3]     100,000 files in 2,000 partitions unless told; without Spark
    python -m bench.scale [FILES [PARTITIONS]] --keyed    only what a keyed write by Spark tasks asks of the table

The data files are empty: only metadata is read of them.  Each operation runs in a process of its own, in which the same
operation on a small table ran before; so the first time includes reading the large table's metadata, and no imports.
Files come in commits of some partitions each, as a table that is written day by day has them.  With ``--s3`` the same
tables lie in a bucket of a server on loopback, and requests are counted.
"""

from __future__ import annotations

import argparse
import gc
import json
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

import bitlake
from bench.machine import peak_memory
from bench.measure import Result, print_report
from bench.planning import COLUMNS, entries
from bench.s3_read import file_system
from bitlake.codec.avro import Block
from bitlake.codec.binary_row import EMPTY_ROW, decode_row, encode_row_with_arity
from bitlake.mergetree.bucket import LiveBuckets, Slot, bucket_states
from bitlake.mergetree.cross_partition import stored_row_counts
from bitlake.metadata.manifest import MANIFEST, EntryKind, ManifestEntry, encode_manifest_list
from bitlake.metadata.manifest_columns import decode_columns
from bitlake.runtime import process_caches
from bitlake.schema.merge_spec import is_cross_partition
from bitlake.snapshot.manifests import snapshot_manifests
from bitlake.write.commit import commit
from bitlake.write.commit_plan import CommitPlan

if TYPE_CHECKING:
    import numpy.typing as npt

    from bench.cases import Bench

FILES, PARTITIONS = 100_000, 2_000
SMALLER = 10_000, 200
_SMALL = 100, 4
"""Files and partitions of the table on which each operation runs first."""
_PLAN_SECONDS, _PLAN_MB, _SECOND, _PARTITION, _COMMIT, _KEYED = 4e-6, 500, 0.1, 0.05, 0.02, 0.1
"""Targets: a file in a plan of everything, its peak memory; the plan again; a partition's; a commit; a keyed one."""
_PART = pa.field("part", pa.int32(), nullable=False)
_COMMITS = 40
"""Commits that make the table; the partitions of one lie side by side, as if they had been compacted."""
_ROUNDS = 5
_PARTITION_AT, _NAME_AT = 15, 31
"""Bytes of a manifest's record before the partition's number (one INT), and before the number in the file's name."""
_TOP_LEVEL = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tables are, and how large the large ones are."""

    home: str
    files: int
    partitions: int
    options: dict[str, str] = field(default_factory=dict)

    def table(self, name: str) -> bitlake.Table:
        """One of the tables, opened again."""
        return bitlake.connect(self.home, storage_options=self.options).table(name)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of the first run and the median of later ones (None: there is none), peak MB."""

    first: float
    again: float | None
    peak: float


def make_table(
    folder: Path, name: str, files: int, partitions: int, keyed: bool = False, across: bool = False
) -> bitlake.Table:
    """A partitioned table of that many data files, whose entries say 500 rows; no file is created.

    ``across``: the keys of a ``keyed`` one are unique across partitions.
    """
    key = [COLUMNS.field(0).with_nullable(False)] if keyed else [COLUMNS.field(0)]
    schema = pa.schema([_PART, *key, *list(COLUMNS)[1:]])
    how: dict[str, Any] = {"primary_key": ["part", "order_id"], "options": {"bucket": "1"}} if keyed else {}
    if across:
        how = {"primary_key": ["order_id"], "options": {"bucket": "-1"}}
    table = bitlake.connect(str(folder)).create_table(name, schema, partition_by=["part"], **how)
    types = [f.type for f in table.schema.partition_fields]
    plain = replace(table.schema, fields=table.schema.fields[1:], partition_keys=(), primary_keys=(), options={})
    known = tuple(COLUMNS.names)  # the partition's own columns need no statistics
    made = [
        replace(e, file=replace(e.file, embedded_index=None, value_stats_cols=known))
        for e in entries(plain, min(files, 10_000))
    ]
    if keyed:
        made = [_with_keys(e, plain.fields[0].type) for e in made]
    share = -(-partitions // _COMMITS)
    for first in range(0, partitions, share):
        batch: list[ManifestEntry] = []
        for part in range(first, min(first + share, partitions)):
            raw = encode_row_with_arity(types, (part,))
            at = part * (files // partitions)
            for number in range(at, at + files // partitions):
                like = made[number % len(made)]
                file = replace(like.file, file_name=f"data-{number:08x}-5f4f-4c11-9d8c-0d3bd47c1f5e-0.parquet")
                batch.append(replace(like, partition=raw, total_buckets=1 if keyed and not across else -1, file=file))
        table._core.commit_files(table._core.state(), batch, "WRITE")
    return table


def make_flat_table(folder: Path, name: str, files: int, buckets: int) -> bitlake.Table:
    """An unpartitioned primary-key table of that many data files; each manifest has files of all buckets."""
    schema = pa.schema([COLUMNS.field(0).with_nullable(False), *list(COLUMNS)[1:]])
    options = {"bucket": str(buckets)}
    table = bitlake.connect(str(folder)).create_table(name, schema, primary_key=["order_id"], options=options)
    plain = replace(table.schema, primary_keys=(), options={})
    made = [
        _with_keys(replace(e, file=replace(e.file, embedded_index=None)), plain.fields[0].type)
        for e in entries(plain, min(files, 10_000))
    ]
    # In one commit: each of several would be checked against the files of all buckets before it.
    every = [_file_of_bucket(made[n % len(made)], n, n % buckets, buckets) for n in range(files)]
    table._core.commit_files(table._core.state(), every, "WRITE")
    return table


def _file_of_bucket(like: ManifestEntry, number: int, bucket: int, buckets: int) -> ManifestEntry:
    """An entry of level 0, whose files may overlap."""
    name = f"data-{number:08x}-5f4f-4c11-9d8c-0d3bd47c1f5e-0.parquet"
    return replace(like, bucket=bucket, total_buckets=buckets, file=replace(like.file, file_name=name, level=0))


def _with_keys(entry: ManifestEntry, key: Any) -> ManifestEntry:
    """The entry of a file of the top level with ascending keys."""
    number = int(entry.file.file_name[5:13], 16)
    low, high = (encode_row_with_arity([key], (k,)) for k in (number * 500, number * 500 + 499))
    return replace(entry, file=replace(entry.file, min_key=low, max_key=high, level=_TOP_LEVEL))


def _create_files(table: bitlake.Table) -> None:
    """The data files that the entries name, all empty: what orphan removal lists."""
    for part in table.scan().plan().files:
        path = Path(part.path.removeprefix("file:"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def _row(part: int, number: int) -> pa.Table:
    """One row of that partition."""
    schema = pa.schema([_PART, *COLUMNS])
    values = {"part": part, "order_id": number, "user_id": number, "status": "PENDING", "region": "EU"}
    return pa.Table.from_pylist([values], schema=schema)


def _plan_of_partition(table: bitlake.Table, files: int, partitions: int, _: int) -> None:
    planned = table.scan(where=f"part = {partitions // 2} AND order_id >= 0").plan()
    assert len(planned.files) == files // partitions, len(planned.files)


def _plan_of_everything(table: bitlake.Table, files: int, partitions: int, _: int) -> None:
    assert len(table.scan().plan().files) == files


def _append(table: bitlake.Table, files: int, partitions: int, number: int) -> None:
    assert table.append(_row(partitions, number)) is not None


def _upsert(table: bitlake.Table, files: int, partitions: int, number: int) -> None:
    assert table.upsert(_row(partitions, number % 3)) is not None


def _compact(table: bitlake.Table, files: int, partitions: int, _: int) -> None:
    assert table.maintenance.compact(full=True, where=f"part = {partitions}") is not None


def _expire(table: bitlake.Table, files: int, partitions: int, _: int) -> None:
    table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    assert len(table.history.snapshots()) == 1


def _orphans(table: bitlake.Table, files: int, partitions: int, _: int) -> None:
    # No file is as old as this: all are listed and compared.
    assert not table.maintenance.remove_orphan_files(timedelta(hours=1), dry_run=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """What is measured: on which table, by what, whether again in that process; targets of the first run and others."""

    table: str
    run: Callable[[bitlake.Table, int, int, int], None]
    repeated: bool = True
    first: float | None = None
    again: float | None = None


OPERATIONS = {
    "plan of one partition": Operation("scale", _plan_of_partition, first=_PARTITION, again=_SECOND),
    "plan of everything": Operation("scale", _plan_of_everything, again=_SECOND),
    "append of a row": Operation("scale", _append, again=_COMMIT),
    "upsert of a row": Operation("keyed", _upsert, again=_KEYED),
    "compaction of a partition": Operation("scale", _compact, repeated=False),
    "full compaction of a partition by key": Operation("keyed", _compact, repeated=False),
    "looking for orphan files": Operation("scale", _orphans, repeated=False),
    "expiry of all snapshots but one": Operation("scale", _expire, repeated=False),
}
"""In the order in which they run: compaction needs the small files of appends, and expiry comes last."""
_WRITES = {"scale": "append of a row", "keyed": "upsert of a row"}


def measure_here(place: Place, name: str, rounds: int) -> Cost:
    """Run an operation on the small table, then on the large one: once, and ``rounds`` times more."""
    operation = OPERATIONS[name]
    for number in range(1 + operation.repeated):
        operation.run(place.table(f"small_{operation.table}"), *_SMALL, number)
    table = place.table(operation.table)
    gc.collect()
    taken = []
    for number in range(1 + rounds * operation.repeated):
        started = time.process_time()  # CPU time: other work on the machine does not count
        operation.run(table, place.files, place.partitions, number)
        taken.append(time.process_time() - started)
    again = statistics.median(taken[1:]) if taken[1:] else None
    return Cost(taken[0], again, peak_memory())


def _measured(place: Place, name: str, rounds: int = _ROUNDS) -> Cost:
    """Run :func:`measure_here` in a new process."""
    told = json.dumps([name, rounds, place.home, place.files, place.partitions, place.options])
    command = [sys.executable, "-m", "bench.scale", "--operation", told]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def made_tables(folder: Path, files: int, partitions: int, say: Callable[[str], None]) -> Iterator[Place]:
    """A large and a small table of each kind in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as home:
        for keyed, name in ((False, "scale"), (True, "keyed")):
            say(f"scale: making {files:,} files in {partitions:,} partitions{', with keys' * keyed}")
            make_table(Path(home), f"small_{name}", *_SMALL, keyed=keyed)
            table = make_table(Path(home), name, files, partitions, keyed=keyed)
            if not keyed:
                _create_files(table)
        yield Place(home, files, partitions)


def results(place: Place) -> list[Result]:
    """Every operation on local files: the first time in a process, again, and the process's peak memory."""
    files = place.files
    told = f"{files:,} files, {place.partitions:,} partitions"
    table = place.table("scale")
    manifests = [p for p in Path(table.path).glob("manifest/manifest-*") if "-list-" not in p.name]
    size = sum(p.stat().st_size for p in manifests)
    note = f"{len(manifests)} manifests, {size / 1e6:.0f} MB; {size / files:.0f} bytes a file"
    types = [f.type for f in table.schema.partition_fields]
    slots = [(encode_row_with_arity(types, (part,)), 0) for part in range(place.partitions)]
    lines = _keyed_write(table, slots, told) if files <= FILES else []  # telling all takes minutes
    for name, operation in OPERATIONS.items():
        cost, everything = _measured(place, name), operation.run is _plan_of_everything
        print(f"{told}: {name}: {cost}", flush=True)  # a run of millions of files takes an hour
        first = _PLAN_SECONDS * files if everything else operation.first
        lines.append(Result(f"{told}: {name}, first", "s", cost.first, None, "", first, 1, note))
        if cost.again is not None:
            lines.append(Result(f"{told}: {name}, again", "s", cost.again, None, "", operation.again, _ROUNDS))
        memory = _PLAN_MB if everything else None
        lines.append(Result(f"{told}: {name}, peak memory", "MB", cost.peak, None, "", memory, 1))
        note = ""
    return lines


def s3_results(place: Place, say: Callable[[str], None]) -> list[Result]:
    """The same on a server of S3's protocol: requests of the first time, and CPU time of the process that asks."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    import flaky_proxy
    import s3_server

    told, lines = f"S3, {place.files:,} files", []
    with s3_server.running() as endpoint, flaky_proxy.running(endpoint) as proxy:
        options = s3_server.options(proxy.endpoint)
        say(f"scale: copying the metadata of {place.files:,} files into a bucket")
        _upload(Path(place.home), endpoint, s3_server.BUCKET)
        there = Place(f"s3://{s3_server.BUCKET}/scale", place.files, place.partitions, options)
        for name, operation in OPERATIONS.items():
            if operation.run is _orphans:
                continue  # the data files are not in the bucket
            if operation.run is _compact:  # it needs some small files
                _measured(there, _WRITES[operation.table])
            proxy.seen.clear()
            cost = _measured(there, name, rounds=0)
            asked = sum(f".db/{operation.table}/" in unquote(path) for _, path, _ in proxy.seen)
            lines.append(Result(f"{told}: {name}, first", "s", cost.first, None, "", None, 1))
            lines.append(Result(f"{told}: {name}, requests", "requests", asked, None, "", None, 1))
            lines.append(Result(f"{told}: {name}, peak memory", "MB", cost.peak, None, "", None, 1))
    return lines


def multiply(table: bitlake.Table, files: int, partitions: int, times: int) -> None:
    """Simulate a table of ``times`` as many files: copies of its manifests with other partitions and names of files.

    The bytes of both are changed where they are in the uncompressed blocks: they have fixed sizes and places.
    """
    state = table._core.state()
    assert state.snapshot is not None
    metas = snapshot_manifests(state.table_files, state.snapshot)
    types = [f.type for f in state.schema.partition_fields]
    copied = list(metas)
    for meta in metas:
        data = Path(state.paths.manifest(meta.file_name)).read_bytes()
        (columns,) = decode_columns([data])
        assert columns is not None
        blocks = MANIFEST.blocks(data, meta.file_name)
        assert blocks is not None
        starts = np.split(columns.start, np.cumsum([b.records for b in blocks])[:-1])
        for turn in range(1, times):
            moved = [
                Block.plain(b.records, _moved(np.frombuffer(b.data, np.uint8), at, turn * partitions, turn * files))
                for b, at in zip(blocks, starts, strict=True)
            ]
            name, encoded = f"{meta.file_name}{turn}", MANIFEST.encode_blocks(moved, 1, "zstandard")
            Path(state.paths.manifest(name)).write_bytes(encoded)
            stats = meta.partition_stats
            low, high = (decode_row(types, row)[0] + turn * partitions for row in (stats.min, stats.max))
            stats = replace(stats, min=encode_row_with_arity(types, (low,)), max=encode_row_with_arity(types, (high,)))
            copied.append(replace(meta, file_name=name, file_size=len(encoded), partition_stats=stats))
    names = {"base_manifest_list": copied, "delta_manifest_list": []}
    written: dict[str, Any] = {}
    for kind, listed in names.items():
        encoded = encode_manifest_list(listed, 1)
        written |= {kind: f"manifest-list-simulated-{kind}", f"{kind}_size": len(encoded)}
        Path(state.paths.manifest(written[kind])).write_bytes(encoded)
    rows = state.snapshot.total_record_count * times
    snapshot = replace(state.snapshot, id=state.snapshot.id + 1, total_record_count=rows, **written)
    Path(state.paths.snapshot(snapshot.id)).write_text(snapshot.to_json())
    Path(state.paths.snapshot_dir, "LATEST").write_text(str(snapshot.id))


def _moved(block: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], partition: int, number: int) -> bytes:
    """A block's bytes, with so much added to the partition and the number in the name of each record at ``starts``."""
    out = block.copy()
    at = starts.astype(np.int64)[:, None]
    part = at + np.arange(_PARTITION_AT, _PARTITION_AT + 4)
    out[part] = (block[part].view(np.int32) + np.int32(partition)).view(np.uint8)
    name = at + np.arange(_NAME_AT, _NAME_AT + 8)
    digits = block[name].astype(np.int64)
    shifts = 4 * np.arange(7, -1, -1)
    values = (np.where(digits > ord("9"), digits - ord("a") + 10, digits - ord("0")) << shifts).sum(axis=1) + number
    hexes = (values[:, None] >> shifts) & 15
    out[name] = np.where(hexes > 9, hexes + ord("a") - 10, hexes + ord("0"))
    return out.tobytes()


def _upload(home: Path, endpoint: str, bucket: str) -> None:
    """Copy all but data files."""
    store = file_system(endpoint)
    for path in home.rglob("*"):
        if path.is_file() and path.suffix != ".parquet":
            with store.open_output_stream(f"{bucket}/scale/{path.relative_to(home)}") as to:
                to.write(path.read_bytes())


def _forget(table: bitlake.Table) -> None:
    """Clear the caches of the lake and, for what is unpickled, of this process."""
    store = table._core.store
    store.caches.clear()
    process_caches(store.identity, store.caches.budget.size).clear()
    gc.collect()


def _keyed_write(table: bitlake.Table, slots: list[Slot], told: str, everything: bool = True) -> list[Result]:
    """Measure how a keyed write on Spark looks up live files: in the driver, in a task for ``slots``, in the commit."""

    def driver(lazy: bool) -> tuple[float, int]:
        _forget(table)
        started = time.process_time()
        state = table._core.state()
        counts = stored_row_counts(state) if lazy and is_cross_partition(state.schema) else {}
        sent = pickle.dumps((LiveBuckets.of(state, lazy=lazy), counts))
        return time.process_time() - started, len(sent)

    def task(some: list[Slot]) -> tuple[float, float]:
        """Seconds of a task, and of another one in the same process for other slots."""
        sent = pickle.dumps(LiveBuckets.of(table._core.state(), lazy=True))
        _forget(table)
        taken = []
        for turn in (some, [slots[(slots.index(s) + len(some)) % len(slots)] for s in some]):
            live: LiveBuckets = pickle.loads(sent)
            started = time.process_time()
            live.load(turn)
            assert set(turn) <= set(live.states)
            taken.append(time.process_time() - started)
        return taken[0], taken[1]

    asked, sent = driver(True)
    note = f"{sent:,} bytes to each task"
    lines = [Result(f"{told}: a keyed write by tasks, driver", "s", asked, None, "", None, 1, note)]
    if everything:
        all_asked, all_sent = driver(False)
        note = f"{all_sent / 1e6:.0f} MB to each task"
        lines.append(Result(f"{told}: as if the driver told all", "s", all_asked, None, "", None, 1, note))
    first = len(slots) // 2
    for count in (1, 50):
        cold, warm = task(slots[first : first + count])
        what = f"{told}: a task looks at {count} of {len(slots):,} partitions or buckets"
        lines.append(Result(what, "s", cold, None, "", None, 1, f"{warm:.3f} s for others in the same process"))
    return lines


def _keyed_commit(table: bitlake.Table, slot: Slot, told: str) -> list[Result]:
    """Commits of a file of one bucket: the first may merge manifests; then one with empty caches, and five more."""
    (like,) = bucket_states(table._core.state(), [slot])[slot].files[:1]

    def once(cold: bool) -> float:
        if cold:
            _forget(table)
        state = table._core.state()
        entry = replace(like, file=replace(like.file, file_name=f"data-{uuid.uuid4()}-0.parquet", level=0))
        plan = CommitPlan("APPEND", (entry,), sequences={slot: 1 << 60})  # checked as an upsert's
        started = time.process_time()
        assert commit(state.store, state.paths, plan, state.schema, "bench") is not None
        return time.process_time() - started

    merging, cold, again = once(True), once(True), statistics.median(once(False) for _ in range(_ROUNDS))
    note = f"again {again:.4f} s; the first one, with a merge of manifests: {merging:.2f} s"
    return [Result(f"{told}: a commit of a file", "s", cold, None, "", None, 1, note)]


def keyed_results(folder: Path, files: int, partitions: int, say: Callable[[str], None]) -> list[Result]:
    """Keyed writes by Spark tasks: of a partitioned table, one without partitions, and one with keys unique across."""
    lines: list[Result] = []
    for kind in ("partitioned", "unpartitioned", "unique across partitions"):
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as home:
            say(f"scale: making {files:,} files, {kind}")
            if kind == "unpartitioned":
                table = make_flat_table(Path(home), "flat", files, partitions)
                slots = [(EMPTY_ROW, bucket) for bucket in range(partitions)]
            else:
                table = make_table(Path(home), "keyed", files, partitions, keyed=True, across=kind != "partitioned")
                types = [f.type for f in table.schema.partition_fields]
                slots = [(encode_row_with_arity(types, (part,)), 0) for part in range(partitions)]
            told = f"{files:,} files, {kind}"
            made = _keyed_write(table, slots, told, everything=files <= FILES)  # telling all takes minutes
            made += _keyed_commit(table, slots[len(slots) // 3], told)
            for line in made:
                print(line, flush=True)
            lines += made
    return lines


def iceberg_results(folder: Path, files: int, say: Callable[[str], None]) -> list[Result]:
    """Commits to a table with Iceberg metadata: a file added, one removed, and one removed without caches."""
    schema = pa.schema(list(COLUMNS))
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as home:
        say(f"scale: publishing {files:,} files as Iceberg")
        options = {"metadata.iceberg.storage": "table-location"}
        table = bitlake.connect(home).create_table("iceberg", schema, options=options)
        made = [replace(e, file=replace(e.file, embedded_index=None)) for e in entries(table.schema, files)]
        for first in range(0, files, files // _COMMITS):
            table._core.commit_files(table._core.state(), made[first : first + files // _COMMITS], "WRITE")

        def commit(changes: list[ManifestEntry], operation: str, cold: bool) -> float:
            if cold:
                _forget(table)
            state, started = table._core.state(), time.process_time()
            table._core.commit_files(state, changes, operation)
            return time.process_time() - started

        def middle(kind: EntryKind, cold: bool = False) -> float:
            adds = kind is EntryKind.ADD
            chosen = [made.pop(len(made) // 3) for _ in range(7)]
            names = [f"data-more-{i}-0.parquet" if adds else e.file.file_name for i, e in enumerate(chosen)]
            changes = [
                replace(e, kind=kind, file=replace(e.file, file_name=n)) for e, n in zip(chosen, names, strict=True)
            ]
            return statistics.median(commit([c], "WRITE" if adds else "DELETE", cold) for c in changes)

        told = f"{files:,} files, with Iceberg metadata"
        return [
            Result(f"{told}: a commit of one more file", "s", middle(EntryKind.ADD), None, "", _COMMIT, 7),
            Result(f"{told}: one that removes a file", "s", middle(EntryKind.DELETE), None, "", _COMMIT, 7),
            Result(f"{told}: the same, caches empty", "s", middle(EntryKind.DELETE, True), None, "", _COMMIT, 7),
        ]


def scale(bench: Bench) -> list[Result]:
    """How long do plans, commits and maintenance of a table of 10k and of 100k files take?"""
    folder, lines = bench.folder / "scale", []
    for size in (SMALLER, (FILES, PARTITIONS)):
        with made_tables(folder, *size, bench.say) as place:
            lines += (
                s3_results(place, bench.say) if size == SMALLER else []
            )  # before operations on local files change them
            lines += results(place)
    return lines + iceberg_results(folder, SMALLER[0], bench.say)


def main() -> None:
    """Without Spark and the rest of the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("files", type=int, nargs="?", default=FILES)
    parser.add_argument("partitions", type=int, nargs="?", default=PARTITIONS)
    parser.add_argument("--s3", action="store_true", help="on a server of S3's protocol, too")
    parser.add_argument("--keyed", action="store_true", help="only keyed writes by Spark tasks")
    parser.add_argument("--times", type=int, default=1, help="also simulate a table of this many times the files")
    parser.add_argument("--folder", type=Path, help="where the tables are made (the folder for temporary files)")
    parser.add_argument("--operation", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.operation:
        name, rounds, *place = json.loads(chosen.operation)
        cost = measure_here(Place(*place), name, rounds)
        print(json.dumps([cost.first, cost.again, cost.peak]))
        return
    folder = (chosen.folder or Path(tempfile.gettempdir())) / "scale"
    if chosen.keyed:
        print_report(keyed_results(folder, chosen.files, chosen.partitions, print), {}, 0)
        return
    with made_tables(folder, chosen.files, chosen.partitions, print) as place:
        lines = s3_results(place, print) if chosen.s3 else []  # first: operations on local files change them
        more = Place(f"{place.home}/times", chosen.files * chosen.times, chosen.partitions * chosen.times)
        if chosen.times > 1:
            shutil.copytree(place.home, more.home, ignore=shutil.ignore_patterns("*.parquet", "part=*"))
        lines += results(place)
        if chosen.times > 1:
            for name in ("scale", "keyed"):
                multiply(more.table(name), chosen.files, chosen.partitions, chosen.times)
            lines += results(more)
    print_report([*lines, *iceberg_results(folder, min(chosen.files, SMALLER[0]), print)], {}, 0)


if __name__ == "__main__":
    main()
