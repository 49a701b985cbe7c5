"""Streams: read from where options say, written once whatever is killed in between."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive, long
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import types as T

import bitlake
from bitlake import _clock
from bitlake.catalog.catalog import Identifier
from bitlake.errors import CommitConflict, InvalidRequest, NotFound
from bitlake.mergetree.task_writes import TaskResult
from bitlake.snapshot.consumers import consumers
from bitlake.spark.source import read as streams
from bitlake.spark.source.data_source import BitlakeDataSource, Message, StreamWriter
from bitlake.spark.source.options import SourceOptions
from bitlake.spark.write.streaming import StreamTarget, query_id
from bitlake.table.table import Table

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
limited_here = streams.admission is not None
limited = pytest.mark.skipif(not limited_here, reason="PySpark 4.1 lets no Python source limit what it reads")


def batch(*ids: int, v: str = "a") -> pa.Table:
    return pa.table([list(ids), [v] * len(ids)], schema=SCHEMA)


def content(table: Table) -> dict[int, str]:
    rows = table.scan().to_arrow()
    assert len(set(rows.column("id").to_pylist())) == rows.num_rows, "a row is there twice"
    return dict(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))


# --- readers, as Spark calls them, without a session ------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> bitlake.Lake:
    """A lake without Spark, with a table of three snapshots of ten rows, and a table of keys with a changelog."""
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("t", SCHEMA)
    for i in range(3):
        table.append(batch(*range(i * 10, i * 10 + 10)))
    keys = lake.create_table("k", SCHEMA, primary_key=["id"], options={"bucket": "2", "changelog-producer": "input"})
    keys.upsert(batch(1, 2, 3))
    keys.upsert(batch(1, 2, v="b"), ["+U", "-D"])
    return lake


def reader_of(lake: bitlake.Lake, table: str = "t", **options: str) -> Any:
    given = {"warehouse": lake.path, "table": table, **{k.replace("_", "-"): v for k, v in options.items()}}
    source = BitlakeDataSource(given)
    return source.streamReader(source.schema())


def rows_of(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
    batches = [b for p in reader.partitions(start, end) for b in reader.read(p)]
    return sorted(tuple(r.values()) for b in batches for r in b.to_pylist())


def latest(reader: Any, start: dict[str, Any]) -> dict[str, Any]:
    if streams.admission is None:
        return reader.latestOffset()  # type: ignore[no-any-return]
    return reader.latestOffset(start, reader.getDefaultReadLimit())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, range(30)),
        ({"start": "latest-full"}, range(30)),
        ({"start": "earliest", "where": "id < 25 AND v = 'a'"}, range(25)),
        ({"start": "latest"}, ()),
        ({"snapshot": "2"}, range(10, 30)),
        ({"start": "from-snapshot", "snapshot": "3"}, range(20, 30)),
        ({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "3"}, range(30)),
        ({"timestamp": "2000-01-01 00:00:00", "columns": "id"}, range(30)),
        ({"scan.mode": "from-timestamp", "scan.timestamp-millis": "253402300799000"}, ()),
    ],
)
def test_where_a_stream_begins(plain: bitlake.Lake, options: dict[str, str], ids: range) -> None:
    reader = reader_of(plain, **options)
    start = reader.initialOffset()
    assert [r[0] for r in rows_of(reader, start, latest(reader, start))] == list(ids)


def test_a_changelog_with_its_kinds(plain: bitlake.Lake) -> None:
    for table, options in (("k", {"read.changelog": "true"}), ("k$audit_log", {})):
        reader = reader_of(plain, table, snapshot="1", **options)
        start = reader.initialOffset()
        assert rows_of(reader, start, latest(reader, start)) == [
            ("+I", 1, "a"),
            ("+I", 2, "a"),
            ("+I", 3, "a"),
            ("+U", 1, "b"),
            ("-D", 2, "b"),
        ]
        assert len(reader.partitions(start, latest(reader, start))) == 1, "little is read by one task"


@pytest.mark.parametrize(
    ("columns", "names"),
    [("v, id", ["rowkind", "v", "id"]), ("id, RowKind", ["id", "rowkind"]), ("id", ["rowkind", "id"])],
)
def test_chosen_columns_come_with_the_kinds_of_rows(plain: bitlake.Lake, columns: str, names: list[str]) -> None:
    reader = reader_of(plain, "k", snapshot="1", row_kind="true", columns=columns)
    start = reader.initialOffset()
    rows = rows_of(reader, start, latest(reader, start))
    kind, key = names.index("rowkind"), names.index("id")
    assert sorted((r[key], r[kind]) for r in rows) == [(1, "+I"), (1, "+U"), (2, "+I"), (2, "-D"), (3, "+I")]
    given = {"warehouse": plain.path, "table": "k", "read.changelog": "true", "columns": columns}
    assert BitlakeDataSource({**given, "incremental-between": "0,2"}).schema().names == names


@pytest.mark.parametrize("buckets", [2, 3, 4])
def test_rows_of_a_key_keep_their_order_over_a_rescale(plain: bitlake.Lake, buckets: int) -> None:
    table = plain.create_table("moving", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.upsert(batch(*range(8)))
    reader = reader_of(plain, "moving", snapshot="1", row_kind="true")
    start = reader.initialOffset()
    for number, count in enumerate((buckets, 1)):
        table.upsert(batch(*range(8), v=f"{number} before"), ["-D"] * 8)
        table.maintenance.rescale(count)
        table.upsert(batch(*range(8), v=f"{number} after"))
    found: dict[int, str] = {}
    for part in reader.partitions(start, latest(reader, start)):  # the writers number rows by this order
        for row in (r for b in reader.read(part) for r in b.to_pylist()):
            found.pop(row["id"], None) if row["rowkind"] == "-D" else found.update({row["id"]: row["v"]})
    assert found == content(table) == dict.fromkeys(range(8), "1 after")


@pytest.mark.parametrize("vectors", ["false", exhaustive("true")])
@pytest.mark.parametrize("producer", ["none", exhaustive("input"), "lookup"])
def test_keys_that_move_between_partitions_end_in_the_new_one(plain: bitlake.Lake, producer: str, vectors: str) -> None:
    """Rows as a table with the same keys takes them: all changes at once, or as few as a micro-batch can take."""
    rng = random.Random(f"{producer} {vectors}")
    options = {"changelog-producer": producer, "deletion-vectors.enabled": vectors}
    schema = SCHEMA.append(pa.field("p", pa.int64()))
    table = plain.create_table("places", schema, primary_key=["id"], partition_by=["p"], options=options)

    def write(count: int) -> None:
        ids = [rng.randrange(8) for _ in range(count)]
        rows = pa.table([ids, [str(rng.random()) for _ in ids], [rng.randrange(3) for _ in ids]], schema=schema)
        table.upsert(rows, [rng.choice(["+I", "+U", "+U", "-D"]) for _ in ids])

    write(30)
    reader = reader_of(plain, "places", row_kind="true", **({"maxFilesPerTrigger": "1"} if limited_here else {}))
    first = at = reader.initialOffset()
    found: dict[int, tuple[str, int]] = {}
    steps = [first]
    for _ in range(6):
        write(rng.choice([1, 3, 30]))
        while (end := latest(reader, at)) != at:
            steps.append(at := end)
    expected = {r["id"]: (r["v"], r["p"]) for r in table.scan().to_arrow().to_pylist()}
    assert len(steps) > 6
    for ends in (steps, [first, at]):
        found.clear()
        for start, end in pairwise(ends):
            for part in reader.partitions(start, end):
                for row in (r for b in reader.read(part) for r in b.to_pylist()):
                    if row["rowkind"] in ("+I", "+U"):
                        found[row["id"]] = row["v"], row["p"]
                    elif row["rowkind"] == "-D":
                        found.pop(row["id"], None)
        assert found == expected
    whole = reader_of(plain, "places").partitions(first, steps[1] if limited_here else at)
    assert len(whole) == 1, "little is read by one task"


def test_a_key_whose_move_is_taken_back_ends_in_its_former_partition(plain: bitlake.Lake) -> None:
    schema = SCHEMA.append(pa.field("p", pa.int64()))
    options = {"write-only": "true"}
    table = plain.create_table("back", schema, primary_key=["id"], partition_by=["p"], options=options)
    table.upsert(pa.table([[1, 2, 3], ["a", "a", "a"], [1, 2, 3]], schema=schema))
    table.maintenance.compact(full=True)
    table.upsert(pa.table([[1, 2, 3], ["b", "b", "b"], [2, 3, 1]], schema=schema))
    reader = reader_of(plain, "back", row_kind="true")
    start = latest(reader, reader.initialOffset())
    table.alter_options({"changelog-producer": "lookup"})
    table.upsert(pa.table([[4], ["a"], [1]], schema=schema))
    found = {1: ("b", 2), 2: ("b", 3), 3: ("b", 1)}
    for part in reader_of(plain, "back", row_kind="true").partitions(start, latest(reader, start)):
        for row in (r for b in reader.read(part) for r in b.to_pylist()):
            found.pop(row["id"], None) if row["rowkind"] == "-D" else found.update({row["id"]: (row["v"], row["p"])})
    assert found == {1: ("a", 1), 2: ("a", 2), 3: ("a", 3)}


@pytest.mark.parametrize("kinds", ["false", "true"])
@pytest.mark.parametrize("table", ["t", "k"])
def test_columns_that_change_while_a_query_runs(plain: bitlake.Lake, table: str, kinds: str) -> None:
    """A renamed column keeps its place, even where another one takes its name; a restart has the new columns."""
    lake_table = plain.table(table)

    def write(**columns: Any) -> None:
        rows = pa.table({"id": pa.array([90], pa.int64()), **columns})
        lake_table.upsert(rows) if table == "k" else lake_table.append(rows)

    reader = reader_of(plain, table, start="latest", row_kind=kinds)
    at = reader.initialOffset()
    lake_table.rename_column("v", "w")
    lake_table.add_column("v", "int")
    write(w=["old"], v=pa.array([7], pa.int32()))
    at, start = latest(reader, at), at
    assert [row[-2:] for row in rows_of(reader, start, at)] == [(90, "old")]
    again = reader_of(plain, table, start="latest", row_kind=kinds)
    assert [row[-3:] for row in rows_of(again, start, at)] == [(90, "old", 7)]
    lake_table.alter_column("v", type="bigint")
    write(w=["old"], v=[1 << 40])
    end = latest(again, at)
    with pytest.raises(Exception, match="column 'v' became BIGINT.*while the query ran; start the query again"):
        again.partitions(at, end)
    lake_table.drop_column("w")
    with pytest.raises(Exception, match="column 'v' was dropped while the query ran"):
        reader.partitions(at, end)
    assert [row[-2:] for row in rows_of(reader_of(plain, table, row_kind=kinds), at, end)] == [(90, 1 << 40)]


@limited
def test_limits_and_what_is_available_now(plain: bitlake.Lake) -> None:
    reader = reader_of(plain, maxFilesPerTrigger="2", maxRowsPerTrigger="10")
    assert type(reader.getDefaultReadLimit()).__name__ == "ReadMaxFiles"
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    plain.table("t").append(batch(100))
    sizes = []
    while (end := latest(reader, start)) != start:
        sizes.append(len(rows_of(reader, start, end)))
        start = end
    assert sizes == [10, 10, 10]
    small = reader_of(plain, maxBytesPerTrigger="1")
    start = small.initialOffset()
    assert len(rows_of(small, start, latest(small, start))) == 10, "a file, whatever its size"
    large = reader_of(plain, maxBytesPerTrigger="1000000")
    assert len(rows_of(large, start, latest(large, start))) > 10
    everything = reader_of(plain, maxFilesPerTrigger="1")
    start = everything.initialOffset()
    end = everything.latestOffset(start, streams.admission.ReadAllAvailable())
    read = plain.table("t").snapshot.uuid  # type: ignore[union-attr]
    assert end == {"snapshot": 5, "index": 0, "full": 0, "read": read, "first": start}


@limited
def test_few_rows_wait(plain: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000
    monkeypatch.setattr(_clock, "now_ms", lambda: now)
    reader = reader_of(plain, minRowsPerTrigger="31", maxTriggerDelayMs="5000")
    start = reader.initialOffset()
    assert latest(reader, start) == start
    now += 5000
    assert latest(reader, start) != start


def test_a_consumer_follows_and_is_followed(plain: bitlake.Lake) -> None:
    table = plain.table("t")
    state = table._core.state()
    reader = reader_of(plain, consumer_id="me")
    start = reader.initialOffset()
    reader.commit({"snapshot": 3, "index": 1, "full": 1})
    assert consumers(state.table_files) == {"me": 3}
    assert reader_of(plain, consumer_id="me").initialOffset() == start, "the first, full snapshot is not done"
    reader.commit({"snapshot": 2, "index": 0, "full": 0})
    assert consumers(state.table_files) == {"me": 2}
    again = reader_of(plain, consumer_id="me")
    assert again.initialOffset() == {"snapshot": 2, "index": 0, "full": 0}
    fresh = reader_of(plain, consumer_id="me", **{"consumer.ignore-progress": "true"})
    assert fresh.initialOffset() == start
    table.alter_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    table.maintenance.expire_snapshots()
    assert [s.id for s in table.history.snapshots()] == [2, 3], "the consumer still needs it"


@pytest.mark.parametrize("start", ["latest-full", "latest", "from-snapshot"])
def test_the_first_micro_batch_records_where_it_starts(plain: bitlake.Lake, start: str) -> None:
    """Expiry took the snapshots of a first micro-batch while it ran, and those after it."""
    table = plain.table("t")
    options = {"start": start, "consumer_id": "me", **({"snapshot": "2"} if start == "from-snapshot" else {})}
    reader = reader_of(plain, **options)
    begin = reader.initialOffset()
    end = latest(reader, begin)
    rows = rows_of(reader, begin, end)
    assert table.history.consumers() == {"me": begin["snapshot"]}
    table.append(batch(100))
    table.maintenance.expire_snapshots(retain_max=1)
    again = reader_of(plain, **options)
    assert rows_of(again, again.initialOffset(), end) == rows, "the same micro-batch, and the query without checkpoint"
    assert rows_of(again, end, latest(again, end)) == [(100, "a")]
    assert table.history.consumers() == {"me": max(end["snapshot"], begin["snapshot"])}, "where the second one starts"


@limited
def test_a_stream_that_waits_for_a_first_snapshot_holds_expiry_back(plain: bitlake.Lake) -> None:
    table = plain.create_table("empty", SCHEMA)
    reader = reader_of(plain, "empty", consumer_id="me")
    begin = reader.initialOffset()
    assert latest(reader, begin) == begin
    for number in range(3):
        table.append(batch(number))
    table.maintenance.expire_snapshots(retain_max=1)
    assert rows_of(reader, begin, latest(reader, begin)) == [(0, "a"), (1, "a"), (2, "a")]


def test_a_consumer_of_a_table_without_snapshots(plain: bitlake.Lake) -> None:
    """The first, empty micro-batch ended in a TypeError."""
    table = plain.create_table("empty", SCHEMA)
    reader = reader_of(plain, "empty", consumer_id="me")
    reader.commit(latest(reader, reader.initialOffset()))
    assert table.history.consumers() == {"me": 1}


@pytest.mark.parametrize("start", ["default", "latest-full", "earliest"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_snapshot_is_an_overwrite(plain: bitlake.Lake, start: str, restarted: bool) -> None:
    """A stream of a table without snapshots lost the rows of its first snapshot if that was an overwrite."""
    table = plain.create_table("empty", SCHEMA)
    options = {"start": start, "consumer_id": "me"} if restarted else {"start": start}
    reader = reader_of(plain, "empty", **options)
    begin = reader.initialOffset()
    end = json.loads(json.dumps(latest(reader, begin)))
    assert rows_of(reader, begin, end) == []
    reader.commit(end)
    if restarted:  # with the name of its consumer alone, without a checkpoint
        reader = reader_of(plain, "empty", **options)
        end = reader.initialOffset()
    table.overwrite(batch(1))
    table.append(batch(2))
    assert rows_of(reader, end, latest(reader, end)) == [(1, "a"), (2, "a")]


@pytest.mark.parametrize("start", ["latest-full", "latest", "earliest"])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_batch_begins_where_it_was_planned(plain: bitlake.Lake, start: str, restarted: bool) -> None:
    """Spark asks for the initial offset again when it reads the first batch: rows before newer snapshots were lost."""
    table = plain.table("t")
    table.alter_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    reader = reader_of(plain, start=start)
    reader.initialOffset()
    first = json.loads(json.dumps(reader.initialOffset()))
    table.append(batch(30))
    end = json.loads(json.dumps(latest(reader, first)))
    rows = [(30, "a")] if start == "latest" else [(i, "a") for i in range(31)]
    table.append(batch(40))
    reader = reader_of(plain, start=start) if restarted else reader
    if limited_here or start != "latest" or not restarted:
        assert rows_of(reader, reader.initialOffset(), end) == rows
    following = json.loads(json.dumps(latest(reader, end)))
    assert rows_of(reader, end, following) == [(40, "a")]
    assert rows_of(reader, following, latest(reader, following)) == []
    assert rows_of(reader, end, end) == [], "an empty batch does not begin there again"
    table.maintenance.expire_snapshots()
    if limited_here or start != "latest":
        reader = reader_of(plain, start=start)
        with pytest.raises(NotFound, match="expired|cannot begin at"):
            rows_of(reader, reader.initialOffset(), end)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "yesterday"}, "'start' is one of latest"),
        ({"snapshot": "1", "timestamp": "2024-01-01"}, "not both"),
        ({"start": "latest", "snapshot": "1"}, "'snapshot' goes with start = from-snapshot"),
        ({"start": "from-timestamp"}, "'timestamp' goes with start = from-timestamp"),
        ({"limit": "1"}, "'limit' is of a batch read"),
        ({"consumer.ignore-progress": "true"}, "goes with 'consumer-id'"),
        ({"maxTriggerDelayMs": "5"}, "go together"),
        ({"maxfilespertrigger": "0"}, "whole number from 1 on|needs PySpark 4.2"),
    ],
)
def test_options_of_streams_that_are_wrong(plain: bitlake.Lake, options: dict[str, str], message: str) -> None:
    given = {"warehouse": plain.path, "table": "t", **options}
    with pytest.raises(InvalidRequest, match=message):
        streams.check_options(SourceOptions.of(given, "stream read"))


def test_streams_that_cannot_be(plain: bitlake.Lake) -> None:
    # PySpark's worker hides what is raised as a reader is made: the methods raise it.
    reader = reader_of(plain, "t$snapshots")
    asked = [reader.initialOffset, partial(latest, reader, {}), partial(reader.partitions, {}, {})]
    for ask in asked if streams.admission is None else [*asked, reader.prepareForTriggerAvailableNow]:
        with pytest.raises(InvalidRequest, match="cannot be streamed"):
            ask()
    with pytest.raises(InvalidRequest, match="'limit' is of a batch read"):
        reader_of(plain, limit="1").initialOffset()
    with pytest.raises(NotFound, match="cannot begin at snapshot 9"):
        reader_of(plain, start="from-snapshot", snapshot="9").initialOffset()
    reader = reader_of(plain)
    plain.table("t").history.rollback(1)
    with pytest.raises(NotFound, match="rolled back"):
        reader._feed.step(streams.StreamOffset(4))


def test_a_restart_does_not_need_where_it_once_began(plain: bitlake.Lake) -> None:
    table = plain.table("t")
    table.alter_options({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    table.maintenance.expire_snapshots()
    reader = reader_of(plain, start="from-snapshot", snapshot="1")
    kept = {"snapshot": 3, "index": 0, "full": 0}
    assert len(rows_of(reader, kept, latest(reader, kept))) == 10
    with pytest.raises(NotFound, match="stands at snapshot 2, which has expired"):
        rows_of(reader, {"snapshot": 2, "index": 0, "full": 0}, kept)


# --- the sink, as Spark calls it, without a session -------------------------------------------------------------------


def writer_of(lake: bitlake.Lake, table: str, **options: str) -> StreamWriter:
    source = BitlakeDataSource({"warehouse": lake.path, "table": table, **options})
    return source.streamWriter(T.StructType().add("id", "long").add("v", "string"), False)


def message(writer: StreamWriter, *ids: int, v: str = "n") -> Message:
    return replace(writer.write(iter(batch(*ids, v=v).to_batches())), query="query")


@pytest.mark.parametrize("table", ["t", "k", "dynamic", "across"])
def test_a_batch_is_committed_once(plain: bitlake.Lake, table: str) -> None:
    plain.create_table("dynamic", SCHEMA, primary_key=["id"])
    plain.create_table("across", SCHEMA, primary_key=["id"], partition_by=["v"])
    before = content(plain.table(table))
    one, two = writer_of(plain, table), writer_of(plain, table)
    one.commit([message(one, 100)], 0)
    second = [message(one, 101), None, message(one, 102)]
    one.commit(second, 1)
    files = {p.name for p in Path(plain.table(table).path).rglob("*.parquet")}
    two.commit([message(two, 101, 102)], 1)  # the batch again, after a restart
    assert {p.name for p in Path(plain.table(table).path).rglob("*.parquet")} == files
    one.abort(second, 1)  # as Spark does when the answer to a commit was lost
    two.commit([message(two, 103)], 2)
    assert content(plain.table(table)) == {**before, **dict.fromkeys((100, 101, 102, 103), "n")}
    users = {s.commit_user for s in plain.table(table).history.snapshots()[-1:]}
    assert users == {"spark-query"}
    assert not list(Path(plain.table(table).path).rglob("*.arrow")), "what tasks staged is gone"


def test_a_batch_written_for_another_changelog_is_refused(plain: bitlake.Lake) -> None:
    """The batch had no changelog, but its snapshot had the new schema: streams of the table lost its rows."""
    table = plain.table("k")
    table.alter_options({"changelog-producer": "none"})
    late = message(writer_of(plain, "k"), 7)
    table.alter_options({"changelog-producer": "input"})
    offset = {"snapshot": table.snapshot.id + 1, "index": 0, "full": 0}  # type: ignore[union-attr]
    committer = writer_of(plain, "k")
    with pytest.raises(CommitConflict, match="option 'changelog-producer' of table .* was changed meanwhile"):
        committer.commit([late], 0)
    committer.commit([message(writer_of(plain, "k"), 7)], 0)
    reader = reader_of(plain, "k")
    assert rows_of(reader, offset, latest(reader, offset)) == [(7, "n")]


def test_an_aborted_batch_leaves_nothing(plain: bitlake.Lake) -> None:
    table = plain.table("t")
    files = {p.name for p in Path(table.path).rglob("*.parquet")}
    writer = writer_of(plain, "t")
    writer.abort([message(writer, 100), None], 0)
    assert {p.name for p in Path(table.path).rglob("*.parquet")} == files
    writer.commit([replace(message(writer), query=None)], 0)
    assert len(table.history.snapshots()) == 3, "an empty batch makes no snapshot"


def test_sinks_that_cannot_be(plain: bitlake.Lake) -> None:
    source = BitlakeDataSource({"warehouse": plain.path, "table": "t"})
    with pytest.raises(InvalidRequest, match="'complete' replaces all rows"):
        source.streamWriter(T.StructType(), True)
    writer = writer_of(plain, "t")
    with pytest.raises(InvalidRequest, match="'commit-user'"):
        writer.commit([replace(message(writer, 1), query=None)], 0)
    assert isinstance(message(writer, 1).load(), TaskResult)


def test_checkpoints_say_whose_batches_they_are(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "abc"}')
    assert query_id(str(tmp_path)) == "abc"
    with pytest.raises(InvalidRequest, match="commit user of its own"):
        query_id(str(tmp_path / "nowhere"))


# --- queries ----------------------------------------------------------------------------------------------------------


def run(query: Any) -> None:
    assert query.awaitTermination(300)
    assert query.exception() is None


def forget_last_commit(checkpoint: Path) -> None:
    """Make Spark believe that it was killed before it noted that the last batch was done."""
    folder = checkpoint / "commits"
    last = max(int(p.name) for p in folder.iterdir() if p.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        if (folder / name).exists():
            os.remove(folder / name)


Start = Callable[[], Any]


@pytest.mark.exhaustive
@pytest.mark.parametrize("ways", ["sink own", long("sink dynamic own")])
def test_streams_end_to_end(lake: bitlake.Lake, tmp_path: Path, ways: str) -> None:
    """Appended rows go from a table into others by the sink (fixed buckets, dynamic ones) and by the lake."""
    source = lake.create_table("src", pa.schema([*SCHEMA, ("kind", pa.string())]))
    options = {"deletion-vectors.enabled": "true"}
    sink = lake.create_table("sink", SCHEMA, primary_key=["id"], options={**options, "bucket": "2"})
    dynamic = lake.create_table("dynamic", SCHEMA, primary_key=["id"], options=options)
    own = lake.create_table("own", SCHEMA, primary_key=["id"], options=options)
    expected: dict[int, str] = {}

    def add(ids: range, v: str, kind: str) -> None:
        source.append(batch(*ids, v=v).append_column("kind", pa.array([kind] * len(ids))))
        expected.update(dict.fromkeys(ids, v))
        if kind == "-D":
            for i in ids:
                del expected[i]

    limits = {"maxFilesPerTrigger": "1"} if streams.admission is not None else {}

    def to_sink(table: str = "sink") -> Any:
        writer = lake.read_stream("src", start="earliest", **limits).writeStream.format("bitlake")
        writer = writer.options(warehouse=lake.path, table=table, checkpointLocation=str(tmp_path / table))
        return writer.option("row-kind-column", "kind").trigger(availableNow=True).start()

    def to_own() -> Any:
        frame = lake.read_stream("src", start="earliest", **limits)
        return lake.write_stream(frame, "own", str(tmp_path / "own"), kinds="kind", trigger={"availableNow": True})

    add(range(20), "one", "+I")
    add(range(10, 30), "two", "+U")
    every = [(to_sink, sink, "sink"), (partial(to_sink, "dynamic"), dynamic, "dynamic"), (to_own, own, "own")]
    every = [way for way in every if way[2] in ways.split()]
    for start, table, checkpoint in every:
        run(start())
        assert content(table) == expected
        snapshots = [s.id for s in table.history.snapshots()]
        forget_last_commit(tmp_path / checkpoint)
        run(start())
        assert [s.id for s in table.history.snapshots()] == snapshots, "the batch was there already"
        assert content(table) == expected
    add(range(5, 15), "three", "-D")
    for start, table, _ in every:
        run(start())
        assert content(table) == expected
        assert len({s.commit_user for s in table.history.snapshots()}) == 1


def test_batches_of_the_sink_may_bring_columns(plain: bitlake.Lake) -> None:
    types = T.StructType().add("id", "long").add("more", "integer").add("kind", "string")
    options = {"warehouse": plain.path, "table": "k", "row-kind-column": "kind", "write.merge-schema": "true"}
    rows = pa.record_batch([[7], pa.array([5], pa.int32()), ["+I"]], names=["id", "more", "kind"])
    for _ in range(2):  # Spark makes a writer for each batch, and where it commits
        writer = BitlakeDataSource(options).streamWriter(types, False)
    writer.commit([replace(writer.write(iter([rows])), query="query")], 0)
    assert plain.table("k").schema.field_names == ("id", "v", "more")
    found = plain.table("k").scan(where="id = 7").to_arrow().to_pylist()
    assert found == [{"id": 7, "v": None, "more": 5}]
    assert plain.table("k").schema.id == 1, "columns are added once"


def test_batches_may_bring_columns(spark: Any, lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE wide (id BIGINT NOT NULL, v STRING DEFAULT 'd') TBLPROPERTIES ('primary-key' = 'id')")
    name, merging = Identifier("default", "wide"), {"write.merge-schema": "true"}
    frame = spark.createDataFrame([(1, None, 5, "+I"), (2, "b", 6, "+I")], "id long, v string, more int, kind string")
    target = StreamTarget(lake._catalog, name, "", "kind", "me", merging)
    target.check(spark, frame)
    for batch in (0, 0, 1):
        target(frame, batch)
    assert lake.table("wide").scan().to_arrow().sort_by("id").to_pydict() == {
        "id": [1, 2],
        "v": ["d", "b"],
        "more": [5, 6],
    }
    appended = [s.commit_identifier for s in lake.table("wide").history.snapshots() if s.commit_kind == "APPEND"]
    assert appended == [0, 1]
    with pytest.raises(InvalidRequest, match="no column 'more2'"):
        StreamTarget(lake._catalog, name, "", None, "me").check(spark, spark.range(1).selectExpr("id", "1 AS more2"))
    with pytest.raises(InvalidRequest, match="'bucket' is not an option of a streaming write"):
        StreamTarget(lake._catalog, name, "", None, "me", {"bucket": "2"}).check(spark, frame)
    wrong = frame.selectExpr("id", "v", "more", "'+X' AS kind")
    with pytest.raises(InvalidRequest, match=r"invalid row kind '\+X'; expected one of \+I"):
        target(wrong, 2)


def test_merge_by_calls(spark: Any, lake: bitlake.Lake) -> None:
    table = lake.create_table("m", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.upsert(batch(1, 2, 3))
    rows = spark.createDataFrame([(1, "x"), (2, None), (9, "y")], "id long, v string")
    merge = lake.merge("m", rows, "target.id = source.id")
    with pytest.raises(InvalidRequest, match="needs a clause"):
        merge.execute()
    done = (
        merge.when_matched_delete("source.v IS NULL")
        .when_matched_update({"v": "concat(source.v, '!')"})
        .when_not_matched_insert()
        .execute()
    )
    assert content(table) == {1: "x!", 3: "a", 9: "y"}
    assert done.collect()[0]["num_inserted_rows"] == 1
    lake.merge("m", "m", "t.id = s.id AND s.id = 9", alias="t", source_alias="s").when_matched_update(
        {"v": "'w'"}
    ).execute()
    assert content(table) == {1: "x!", 3: "a", 9: "w"}
    assert [tuple(r) for r in lake.read("m", "id = 9", columns=["v"]).collect()] == [("w",)]


@pytest.mark.parametrize("key", [exhaustive([]), ["id"]])
def test_batches_are_merged(lake: bitlake.Lake, tmp_path: Path, key: list[str]) -> None:
    """Spark clones the session for a stream: views of its batches are in no other."""
    source = lake.create_table("src", SCHEMA)
    table = lake.create_table("merged", SCHEMA, primary_key=key)
    table.append(batch(1, 2))
    done: list[tuple[int, ...]] = []

    def merge(frame: Any, _: int) -> None:
        merge = lake.merge("merged", frame, "target.id = source.id").when_matched_update().when_not_matched_insert()
        done.append(tuple(merge.execute().collect()[0]))

    for ids in ((1, 5), (5, 6)):
        source.append(batch(*ids, v="b"))
        stream = lake.read_stream("src", start="earliest").writeStream.foreachBatch(merge)
        run(stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())
    assert done == [(2, 1, 0, 1), (2, 1, 0, 1)]
    assert content(table) == {1: "b", 2: "a", 5: "b", 6: "b"}


@pytest.mark.parametrize("trigger", [{"availableNow": True}, exhaustive({"processingTime": "1 second"})])
def test_a_query_that_cannot_be_says_why(lake: bitlake.Lake, tmp_path: Path, trigger: dict[str, Any]) -> None:
    lake.create_table("t", SCHEMA)
    rows = lake.read_stream("t$snapshots").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = rows.trigger(**trigger).start()
    with pytest.raises(StreamingQueryException, match=r"t\$snapshots' cannot be streamed; of the system tables only"):
        query.awaitTermination(300)


def test_a_query_that_does_not_start_leaves_no_table(lake: bitlake.Lake, tmp_path: Path) -> None:
    lake.create_table("n", SCHEMA)
    counted = lake.read_stream("n").groupBy("v").count()  # Spark wants a watermark
    with pytest.raises(AnalysisException, match="watermark"):
        lake.write_stream(counted, "made", str(tmp_path / "c"))
    assert lake.tables() == ["n"]


def test_a_frame_that_is_no_stream(spark: Any, lake: bitlake.Lake) -> None:
    lake.create_table("n", SCHEMA)
    with pytest.raises(InvalidRequest, match="are not a stream; use lake.write"):
        lake.write_stream(spark.range(1), "n", "/nowhere")
    stream = lake.read_stream("n")
    with pytest.raises(InvalidRequest, match="its rows have no kinds"):
        lake.write_stream(stream, "n", "/nowhere", kinds="v")
    lake.create_table("keyed", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidRequest, match="column 'v' has the name of the stream's column of row kinds"):
        lake.write_stream(stream.withColumnRenamed("v", "V"), "keyed", "/nowhere", kinds="V")


def test_wrong_arguments_of_frames_and_streams_are_named(spark: Any, lake: bitlake.Lake, tmp_path: Path) -> None:
    lake.create_table("n", SCHEMA)
    frame, stream = spark.sql("SELECT 1L AS id, 'x' AS v"), lake.read_stream("n")
    wrong: Any = None
    with pytest.raises(NotFound, match="table 'default.m' does not exist"):
        lake.read_stream("m")
    with pytest.raises(InvalidRequest, match="takes a streaming DataFrame of Spark, not Table"):
        lake.write_stream(lake.table("n"), "n", "/nowhere")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="checkpoint must be text, and is None"):
        lake.write_stream(stream, "n", wrong)
    for write in (partial(lake.write, frame), partial(lake.write, batch(1))):
        with pytest.raises(InvalidRequest, match="options must be a dict, and is 'bucket'"):
            write("new", options="bucket")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="partition_by must be a list of names"):
            write("new", partition_by="id")
    assert lake.tables() == ["n"]
    assert lake.write(frame, "new", partition_by=None, options={"write-only": True}) == 1
    assert lake.table("new").schema.options["write-only"] == "true"
    query = lake.write_stream(stream, "new", tmp_path / "c", trigger={"availableNow": True})
    query.awaitTermination(300)
    assert (tmp_path / "c" / "metadata").exists()


@pytest.mark.parametrize("trigger", [{"availableNow": True}, exhaustive({"once": True})])
def test_expiry_after_a_first_run_keeps_what_the_next_one_reads(
    spark: Any, tmp_path: Path, trigger: dict[str, bool]
) -> None:
    """Spark reports no micro-batch of a run that has only one, and no consumer was recorded."""
    lake = bitlake.connect(str(tmp_path / "lake"), spark=spark)
    table = lake.create_table("t", SCHEMA)
    table.append(batch(1))

    def run() -> None:
        stream = lake.read_stream("t", consumer_id="me")
        lake.write_stream(stream, "copy", str(tmp_path / "c"), trigger=trigger).awaitTermination()

    run()
    table.append(batch(2))
    table.append(batch(3))
    table.maintenance.expire_snapshots(retain_max=1)
    run()
    assert content(lake.table("copy")) == dict.fromkeys((1, 2, 3), "a")
