"""Streams of a table's changes: where they begin, how far a step goes, and that steps together tell everything once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from faults import Between
from long import exhaustive

import bitlake
from bitlake import _clock
from bitlake.errors import InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.scan.stream_offsets import ChangeStream, Limits, StreamOffset
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def batch(*ids: int, v: str = "a") -> pa.Table:
    return pa.table([list(ids), [v] * len(ids)], schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path))


@pytest.fixture
def table(lake: bitlake.Lake) -> Table:
    """Five snapshots of ten rows."""
    table = lake.create_table("t", SCHEMA)
    for i in range(5):
        table.append(batch(*range(i * 10, i * 10 + 10)))
    return table


def keyed(lake: bitlake.Lake, **options: str) -> Table:
    given = {"bucket": "2", **{k.replace("_", "-"): v for k, v in options.items()}}
    return lake.create_table("k", SCHEMA, primary_key=["id"], options=given)


def told(feed: ChangeStream, start: StreamOffset, end: StreamOffset) -> list[tuple[Any, ...]]:
    rows = [row for scan in feed.scans(start, end) for row in scan.to_arrow().to_pylist()]
    return [tuple(r.values()) for r in rows]


def ids(rows: list[tuple[Any, ...]]) -> list[int]:
    return sorted(r[0] for r in rows)


def test_a_position_is_kept_as_numbers() -> None:
    at = StreamOffset(3, 2, True)
    assert at.to_dict() == {"snapshot": 3, "index": 2, "full": 1}
    assert StreamOffset.from_dict(at.to_dict()) == at
    end = StreamOffset(4, read="x", first=at)
    again = StreamOffset.from_dict(json.loads(json.dumps(end.to_dict())))
    assert (again, again.read, again.first) == (end, "x", at)
    wrong_first = {**at.to_dict(), "first": {"snapshot": 1}}
    unknown = {**at.to_dict(), "more": 1}
    for wrong in ({}, {"snapshot": 1}, {"snapshot": 1, "index": -1, "full": 0}, unknown, wrong_first):
        with pytest.raises(InvalidRequest, match="invalid stream offset"):
            StreamOffset.from_dict(wrong)


def test_where_streams_begin(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    end = feed.latest()
    assert end == StreamOffset(6)
    assert feed.step(end).end == end
    assert told(feed, end, end) == []
    assert ids(told(feed, feed.full(), end)) == list(range(50))
    assert ids(told(feed, feed.full(earliest=True), end)) == list(range(50))
    assert ids(told(feed, feed.at(4), end)) == list(range(30, 50))
    assert ids(told(feed, feed.at(4, full=True), end)) == list(range(50))
    for wrong in (0, 7):
        with pytest.raises(NotFound, match="cannot begin at snapshot"):
            feed.at(wrong)


def test_an_empty_table_has_a_first_snapshot_to_come(lake: bitlake.Lake) -> None:
    table = lake.create_table("empty", SCHEMA)
    feed = ChangeStream(table._core, kinds=False)
    start = feed.full()
    assert (start, feed.latest()) == (StreamOffset(1, full=True), StreamOffset(1))
    assert feed.step(start).end == feed.step(start, Limits(files=1)).end == start
    assert feed.step(start, None, feed.latest()).end == start
    table.append(batch(1))
    for begin in (start, StreamOffset(1)):
        assert told(feed, begin, feed.step(begin).end) == [(1, "a")]


@pytest.mark.parametrize("earliest", [False, True])
def test_the_first_snapshot_is_an_overwrite(lake: bitlake.Lake, earliest: bool) -> None:
    """A stream that began before it lost its rows."""
    table = lake.create_table("empty", SCHEMA)
    feed = ChangeStream(table._core, kinds=False)
    for start in (feed.full(earliest=earliest), feed.at(1, full=True)):
        assert feed.step(start).end == start
    table.overwrite(batch(1))
    table.append(batch(2))
    assert told(feed, start, feed.step(start).end) == [(1, "a"), (2, "a")]


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        (Limits(files=2), [20, 20, 10]),
        (Limits(rows=25), [20, 20, 10]),
        (Limits(rows=1), [10] * 5),
        (Limits(bytes=1), [10] * 5),
        (Limits(files=100, rows=30), [30, 20]),
    ],
)
def test_limits(table: Table, limits: Limits, steps: list[int]) -> None:
    feed = ChangeStream(table._core, kinds=False)
    for start in (feed.full(), feed.at(1)):
        at, taken, seen = start, [], []
        while True:
            step = feed.step(at, limits)
            if step.end == at:
                break
            rows = told(feed, at, step.end)
            assert step.rows == len(rows)
            taken.append(len(rows))
            seen += rows
            at = step.end
        assert taken == steps
        assert ids(seen) == list(range(50))


def test_no_further_than_told(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    until = feed.latest()
    table.append(batch(100))
    assert feed.step(StreamOffset(1), None, until).end == until
    assert feed.step(StreamOffset(1), Limits(files=100), until).end == until
    assert feed.step(until, Limits(files=1), until).end == until


def test_compactions_and_overwrites_are_no_news(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    start = feed.latest()
    table.maintenance.compact(full=True)
    table.delete("id < 10")
    table.append(batch(100))
    assert told(feed, start, feed.step(start).end) == [(100, "a")]


@pytest.mark.parametrize(
    ("producer", "vectors"),
    [
        ("none", "false"),
        exhaustive("none", "true"),
        exhaustive("input", "false"),
        exhaustive("input", "true"),
        exhaustive("lookup", "false"),
        ("lookup", "true"),
        ("full-compaction", "false"),
    ],
)
def test_kinds_of_rows_make_the_table_again(lake: bitlake.Lake, producer: str, vectors: str) -> None:
    """Whoever applies the feed from any snapshot on, in steps of any size, has the table's rows."""
    table = keyed(lake, changelog_producer=producer, **{"deletion-vectors.enabled": vectors})
    chance = random.Random(producer + vectors)
    feed = ChangeStream(table._core, kinds=True)
    starts: list[tuple[StreamOffset, dict[int, str]]] = [(feed.full(), {})]
    for n in range(8):
        some = chance.sample(range(12), 5)
        table.upsert(batch(*some, v=f"v{n}"), [chance.choice(["+I", "+I", "-D"]) for _ in some])
        starts.append((feed.full(), {}))
    table.maintenance.compact(full=True)
    expected = dict(map(tuple, (r.values() for r in table.scan().to_arrow().to_pylist())))
    for start, rows in starts:
        at = start
        while True:
            step = feed.step(at, Limits(files=chance.choice([1, 2, 100])))
            if step.end == at:
                break
            for kind, key, value in told(feed, at, step.end):
                if kind in ("+I", "+U"):
                    rows[key] = value
                elif kind == "-D":
                    rows.pop(key, None)
            at = step.end
        assert rows == expected, start


@pytest.mark.parametrize("enabled", [True, False])
def test_a_full_snapshot_is_read_in_its_own_deletion_vector_mode(lake: bitlake.Lake, enabled: bool) -> None:
    table = keyed(lake, **{"deletion-vectors.enabled": str(enabled).lower()})
    table.upsert(batch(1, 2, 3))
    table.upsert(batch(2, v="b"), ["-D"])
    table.upsert(batch(3, v="b"))
    before = table.snapshot.id  # type: ignore[union-attr]
    table.maintenance.disable_deletion_vectors() if enabled else table.maintenance.enable_deletion_vectors()
    for kinds in (True, False):
        feed = ChangeStream(table._core, kinds=kinds)
        rows = [row[-2:] for row in told(feed, feed.at(before, full=True), feed.latest()) if row[0] != "-D"]
        assert sorted(rows) == [(1, "a"), (3, "b")]


def test_rows_taken_back_are_left_out_without_kinds(lake: bitlake.Lake) -> None:
    table = keyed(lake, changelog_producer="input")
    table.upsert(batch(1, 2))
    table.upsert(batch(1, 2, v="b"), ["+U", "-D"])
    assert sorted(told(ChangeStream(table._core, kinds=False), StreamOffset(1), StreamOffset(3))) == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
    ]


def test_what_expired_is_missed_by_name(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=2**60)
    first = table.history.snapshots()[0].id
    assert first > 1
    with pytest.raises(NotFound, match="stands at snapshot 1, which has expired .*consumer-id"):
        list(feed.scans(StreamOffset(1), feed.latest()))
    with pytest.raises(NotFound, match="has expired"):
        feed.step(StreamOffset(1), Limits(files=1))
    with pytest.raises(NotFound, match="cannot begin at snapshot 1"):
        feed.at(1)
    assert ids(told(feed, feed.at(first), feed.latest())) == list(range((first - 1) * 10, 50))


def test_a_table_that_was_rolled_back_is_noticed(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    at = feed.latest()
    table.history.rollback(3)
    with pytest.raises(NotFound, match="rolled back"):
        feed.step(at)


def rolled_back(lake: bitlake.Lake) -> Table:
    table = lake.table("t")
    table.history.rollback(3)
    return table


def created_again(lake: bitlake.Lake) -> Table:
    lake.drop_table("t")
    return lake.create_table("t", SCHEMA)


@pytest.mark.parametrize("other", [rolled_back, created_again])
@pytest.mark.parametrize("limits", [None, Limits(files=1)])
def test_other_snapshots_under_the_ids_of_a_stream_are_noticed(
    lake: bitlake.Lake, table: Table, other: Callable[[bitlake.Lake], Table], limits: Limits | None
) -> None:
    feed = ChangeStream(table._core, kinds=False)
    full = feed.full()
    kept = [feed.latest(), feed.step(feed.at(4), Limits(files=1)).end, full, feed.step(full, Limits(files=1)).end]
    kept = [StreamOffset.from_dict(json.loads(json.dumps(at.to_dict()))) for at in kept]
    again = other(lake)
    for n in range(7):
        again.append(batch(100 + n))
    feed = ChangeStream(again._core, kinds=False)
    for at in kept:
        with pytest.raises(NotFound, match="rolled back, or is another one"):
            feed.step(at, limits)
        with pytest.raises(NotFound, match="rolled back, or is another one"):
            list(feed.scans(at, feed.latest()))


def test_a_stream_that_a_rollback_leaves_alone_goes_on(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    at = feed.step(feed.at(1), Limits(files=3)).end
    assert at == StreamOffset(4)
    table.history.rollback(3)
    table.append(batch(100))
    assert told(feed, at, feed.step(at).end) == [(100, "a")]


def test_a_step_whose_end_was_rolled_back_is_not_read_again(table: Table) -> None:
    """A query that stopped in a micro-batch read other rows, or none, after a rollback to before the batch's end."""
    feed = ChangeStream(table._core, kinds=False)
    start = feed.step(feed.at(1), Limits(files=3)).end
    end = feed.step(start).end
    table.history.rollback(4)
    for _ in range(2):
        with pytest.raises(NotFound, match="rolled back, or is another one"):
            list(feed.scans(start, end))
        table.append(batch(100))


@pytest.mark.parametrize("kinds", [True, False])
def test_rows_of_first_row_tables_come_without_a_changelog(lake: bitlake.Lake, kinds: bool) -> None:
    """The files of level 0, which queries of such tables leave out, were left out here, too: no row ever came."""
    table = keyed(lake, merge_engine="first-row")
    feed = ChangeStream(table._core, kinds=kinds)
    start = feed.full()
    table.upsert(batch(1, 2))
    table.upsert(batch(2, 3, v="b"))
    rows = [row[-2:] for row in told(feed, start, feed.latest())]
    # As in Paimon, a row comes even if the table has its key already.
    assert sorted(rows) == [(1, "a"), (2, "a"), (2, "b"), (3, "b")]


def test_all_rows_of_a_snapshot_come_when_another_snapshot_follows(table: Table) -> None:
    """Spark asks for what is available before it asks where a stream begins."""
    feed = ChangeStream(table._core, kinds=False)
    until = feed.latest()
    table.append(batch(50))
    start = feed.full()
    for limits in (None, Limits(files=100)):
        assert ids(told(feed, start, feed.step(start, limits, until).end)) == list(range(51))


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_that_wait_for_a_compaction_come_before_a_rescale(lake: bitlake.Lake, producer: str) -> None:
    """The overwrite merged them into the new buckets, and no changelog ever had them."""
    table = keyed(lake, changelog_producer=producer, write_only="true")
    feed = ChangeStream(table._core, kinds=True)
    start = feed.full()
    table.upsert(batch(1, 2))
    table.maintenance.compact(full=True)
    table.upsert(batch(2, 3, v="b"), ["-D", "+I"])
    table.maintenance.rescale(3)
    rows = [(kind, key) for kind, key, _ in told(feed, start, feed.latest())]
    assert sorted(rows) == [("+I", 1), ("+I", 2), ("+I", 3), ("-D", 2)]
    assert ids([tuple(r.values()) for r in table.scan().to_arrow().to_pylist()]) == [1, 3]


@pytest.mark.parametrize("producer", ["lookup", exhaustive("full-compaction")])
def test_changes_of_a_writer_beside_a_delete_come(tmp_path: Path, producer: str) -> None:
    """The DELETE's rewrite merged rows written after it had compacted, and no changelog had them."""
    options = {"changelog_producer": producer, "write_only": "true", "bucket": "1", "merge_engine": "aggregation"}
    for number in range(0, 1000, 3):
        table = keyed(bitlake.connect(str(tmp_path / str(number))), **options)
        feed = ChangeStream(table._core, kinds=True)
        start = feed.full()
        table.upsert(batch(1, 2, 3, 5))
        store = Between(LocalStore(), number, lambda table=table: table.upsert(batch(2, 4, v="b")))
        Table(FileStoreTable(table.name, table.path, store)).delete("id = 1")
        if not store.done:
            break
        table.maintenance.compact(full=True)
        live = dict(row[1:] for row in told(feed, start, feed.latest()) if row[0][0] == "+")
        assert live == {1: "a", 2: "b", 3: "a", 4: "b", 5: "a"}, f"call {number}"  # as in Paimon, no -D of row 1
    assert number > 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_changes_of_a_snapshot_that_a_rescale_meets_after_a_rollback_come(tmp_path: Path, producer: str) -> None:
    """The rescale had compacted other buckets than those that waited for it there, and no changelog had their rows."""
    options = {"changelog_producer": producer, "write_only": "true"}
    every, rescaled = dict.fromkeys(range(6), "a"), 0
    for number in range(0, 1000, 3):
        table = keyed(bitlake.connect(str(tmp_path / str(number))), **options)
        feed = ChangeStream(table._core, kinds=True)
        start = feed.full()
        table.upsert(batch(*every))
        table.maintenance.compact(full=True)
        table.upsert(batch(1, v="b"))
        store = Between(LocalStore(), number, lambda table=table: table.history.rollback(1))
        Table(FileStoreTable(table.name, table.path, store)).maintenance.rescale(3)
        if not store.done:
            break
        if {e.total_buckets for e in table._core.state().entries()} == {3}:
            rescaled += 1
            assert dict(row[1:] for row in told(feed, start, feed.latest())) == every, f"call {number}"
    assert rescaled > 10


def test_offsets_of_former_versions_are_taken(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    for at in (StreamOffset(6), StreamOffset(3), StreamOffset(5, 0, True)):
        assert at.to_dict().keys() == {"snapshot", "index", "full"}
        assert feed.step(at).end == StreamOffset(6)
    for limits in (None, Limits(files=1)):
        assert feed.step(StreamOffset(6), limits).end.to_dict() == StreamOffset(6).to_dict(), "nothing is new"
    with pytest.raises(InvalidRequest, match="invalid stream offset"):
        StreamOffset.from_dict({**StreamOffset(6).to_dict(), "read": 1})


@pytest.mark.parametrize(("before", "after"), [("none", "input"), ("input", "none"), ("none", "lookup")])
def test_snapshots_are_read_by_the_changelog_that_was_written_then(lake: bitlake.Lake, before: str, after: str) -> None:
    table = keyed(lake, changelog_producer=before)
    feed = ChangeStream(table._core, kinds=True)
    table.upsert(batch(1, 2, 3))
    table.upsert(batch(2, 3, v="b"), ["+U", "-D"])
    full = feed.full()
    table.alter_options({"changelog-producer": after})
    table.upsert(batch(4, v="c"))
    table.maintenance.compact(full=True)
    for start in (StreamOffset(1), full):
        rows: dict[int, str] = {}
        for kind, key, value in told(feed, start, feed.latest()):
            rows.pop(key, None) if kind == "-D" else rows.update({key: value})
        assert rows == {1: "a", 2: "b", 4: "c"}


@pytest.mark.parametrize("limits", [None, Limits(files=1)])
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_postponed_rows_come_once(lake: bitlake.Lake, producer: str, limits: Limits | None) -> None:
    options = {"postpone.batch-write-fixed-bucket": "false", "changelog-producer": producer}
    table = keyed(lake, bucket="-2", **options)
    feed = ChangeStream(table._core, kinds=True)
    starts = [feed.full()]
    table.upsert(batch(1, 2, 3))
    starts.append(feed.full())
    table.maintenance.compact(full=True)
    table.upsert(batch(2, 3, 4, v="b"), ["-D", "+U", "+I"])
    starts.append(feed.full())
    table.upsert(batch(4, v="c"))
    table.maintenance.compact(full=True)
    for at in starts:
        rows: dict[int, str] = {}
        while (end := feed.step(at, limits).end) != at:
            for kind, key, value in told(feed, at, end):
                if kind != "-U":
                    rows.pop(key, None) if kind == "-D" else rows.update({key: value})
            at = end
        assert rows == {1: "a", 3: "b", 4: "c"}


def test_a_checkpoint_of_another_table_is_noticed(table: Table) -> None:
    feed = ChangeStream(table._core, kinds=False)
    with pytest.raises(InvalidRequest, match="of another table"):
        list(feed.scans(StreamOffset(1), StreamOffset(1, 7)))


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "emitted"),
    [("lookup", "none", [1, 2]), ("lookup", "input", [1, 2]), ("full-compaction", "none", [1, 2, 3])],
)
def test_rows_that_wait_for_a_compaction_come_when_the_producer_changes(
    lake: bitlake.Lake, before: str, after: str, emitted: list[int], kinds: bool
) -> None:
    table = keyed(lake, bucket="1", changelog_producer=before, num_sorted_run_compaction_trigger="100")
    if before == "full-compaction":
        table.upsert(batch(3))
        table.maintenance.compact()  # brings the row to no level that the changelog emits
    table.alter_options({"write-only": "true"})
    table = lake.table("k")
    table.upsert(batch(1))
    table.upsert(batch(2))
    feed = ChangeStream(table._core, kinds=kinds)
    start = feed.full()
    assert told(feed, start, feed.latest()) == [], "no compaction has emitted them"
    table.alter_options({"changelog-producer": after})
    table = lake.table("k")
    feed = ChangeStream(table._core, kinds=kinds)
    table.upsert(batch(4))
    rows = told(feed, start, middle := feed.latest())
    assert sorted(row[kinds] for row in rows) == [*emitted, 4]
    table.maintenance.compact(full=True)
    table.upsert(batch(5))
    assert [row[kinds] for row in told(feed, middle, feed.latest())] == [5], "they are emitted once"


def test_an_offset_behind_the_units_of_its_snapshot(lake: bitlake.Lake) -> None:
    table = keyed(lake, bucket="1")
    table.upsert(batch(1))
    feed = ChangeStream(table._core, kinds=False)
    with pytest.raises(InvalidRequest, match="written by another version"):
        list(feed.scans(StreamOffset(1, 1), StreamOffset(2)))


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_all_rows_of_keys_that_moved_between_partitions_hold_no_deletions(lake: bitlake.Lake, producer: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    options = {"bucket": "-1", "write-only": "true", "changelog-producer": producer}
    table = lake.create_table("moving", schema, primary_key=["id"], partition_by=["p"], options=options)
    table.upsert(pa.table([[1, 2], ["x", "x"]], schema=schema))
    table.maintenance.compact(full=True)
    table.upsert(pa.table([[1], ["y"]], schema=schema))
    table.maintenance.compact()
    feed = ChangeStream(table._core, kinds=True)
    assert sorted(told(feed, feed.full(), feed.latest())) == [("+I", 1, "y"), ("+I", 2, "x")]


def applied(feed: ChangeStream, start: StreamOffset, rows: dict[int, Any]) -> StreamOffset:
    """Apply a stream of kinds and two columns up to the latest snapshot; returns where it stands."""
    end = feed.latest()
    for kind, key, value in told(feed, start, end):
        if kind != "-U":
            rows.pop(key, None) if kind == "-D" else rows.update({key: value})
    return end


@pytest.mark.parametrize("after", ["lookup", "full-compaction"])
@pytest.mark.parametrize("before", ["none", "input"])
def test_rows_read_before_their_compaction_are_taken_back_when_the_producer_changes(
    lake: bitlake.Lake, before: str, after: str
) -> None:
    table = keyed(lake, bucket="1", changelog_producer=before, write_only="true")
    table.upsert(batch(1, 2, 3))
    table.maintenance.compact(full=True)
    table.upsert(batch(2, 4, v="b"))
    rows: dict[int, str] = {}
    feed = ChangeStream(table._core, kinds=True)
    at = applied(feed, feed.full(), rows)
    assert rows == {1: "a", 2: "b", 3: "a", 4: "b"}
    table.alter_options({"changelog-producer": after})
    table.upsert(batch(2, 5))
    table.upsert(batch(4, v="b"), ["-D"])
    at = applied(feed, at, rows)
    assert rows == {1: "a", 2: "a", 3: "a"}, "as compactions have emitted"
    table.maintenance.compact(full=True)
    applied(feed, at, rows)
    assert rows == {1: "a", 2: "a", 3: "a", 5: "a"}


def test_a_change_between_producers_that_wait_gives_the_rows_of_levels_between(lake: bitlake.Lake) -> None:
    options = {"num-sorted-run.compaction-trigger": "3", "changelog-producer": "full-compaction"}
    table = keyed(lake, bucket="1", **options)
    table.upsert(batch(*range(5000)))
    table.maintenance.compact(full=True)
    rows: dict[int, str] = {}
    feed = ChangeStream(table._core, kinds=True)
    at = applied(feed, feed.full(), rows)
    table.upsert(batch(1, v="b"))
    table.upsert(batch(2), ["-D"])
    table.maintenance.compact()
    assert {e.file.level for e in table._core.state().entries()} == {2, 3}, "rows are in a level between"
    at = applied(feed, at, rows)
    assert (rows[1], len(rows)) == ("a", 5000)
    table.alter_options({"changelog-producer": "lookup", "write-only": "true"})
    table.upsert(batch(3, v="c"))
    at = applied(feed, at, rows)
    assert (rows[1], rows[3], len(rows)) == ("b", "a", 4999)
    table.alter_options({"changelog-producer": "full-compaction"})
    table.upsert(batch(3, v="d"))
    applied(feed, at, rows)
    assert rows == dict.fromkeys(range(5000), "a"), "as full compactions have emitted"


def test_postponed_rows_come_when_a_table_gets_no_changelog(lake: bitlake.Lake) -> None:
    options = {"postpone.batch-write-fixed-bucket": "false", "changelog-producer": "lookup"}
    table = keyed(lake, bucket="-2", **options)
    rows: dict[int, str] = {}
    feed = ChangeStream(table._core, kinds=True)
    at = applied(feed, feed.full(), rows)
    table.upsert(batch(1, 2))
    at = applied(feed, at, rows)
    assert rows == {}, "they come with a compaction"
    table.alter_options({"changelog-producer": "none"})
    table.upsert(batch(2, 3, v="b"))
    table.maintenance.compact(full=True)
    applied(feed, at, rows)
    assert rows == {1: "a", 2: "b", 3: "b"}


@pytest.mark.parametrize("gone", ["expired", "rolled back"])
@pytest.mark.parametrize(("before", "after"), [("lookup", "none"), ("none", "lookup")])
def test_a_producer_changes_right_after_a_snapshot_that_is_gone(
    lake: bitlake.Lake, before: str, after: str, gone: str
) -> None:
    table = keyed(lake, bucket="1", changelog_producer=before, write_only="true")
    table.upsert(batch(1, 5))
    rows: dict[int, str] = {}
    feed = ChangeStream(table._core, kinds=True)
    at = applied(feed, feed.full(), rows)
    if gone == "rolled back":
        table.upsert(batch(7))
        table.history.rollback(1)
    table.history.reset_consumer("c", 2)
    table.alter_options({"changelog-producer": after})
    table.upsert(batch(2))
    table.upsert(batch(1, v="b"), ["-D"])
    if gone == "expired":
        table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
        assert table.history.snapshots()[0].id == 2
    at = applied(feed, at, rows)
    assert rows == ({2: "a", 5: "a"} if after == "none" else {})
    table.maintenance.compact(full=True)
    applied(feed, at, rows)
    assert rows == {2: "a", 5: "a"}


def test_overwrites_of_an_append_table(lake: bitlake.Lake) -> None:
    """With the option, as in Paimon: the rows of the files that an overwrite adds."""
    made = lake.create_table("t", SCHEMA, options={"bucket": "1", "bucket-key": "id"})
    made.append(batch(1, 2))
    made.overwrite(batch(3))
    made.append(batch(4))
    made.delete("id = 4")
    made.append(batch(5, 6))
    made.delete("id = 5")  # the file is written again
    feed = ChangeStream(made._core, kinds=False)
    start = feed.at(1)
    assert [i for i, _ in told(feed, start, feed.latest())] == [1, 2, 4, 5, 6]
    made.alter_options({"streaming-read-append-overwrite": "true"})
    assert [i for i, _ in told(feed, start, feed.latest())] == [1, 2, 3, 4, 5, 6, 6]


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_overwrites_of_a_primary_key_table(lake: bitlake.Lake, producer: str, vectors: str) -> None:
    """With the option, as in Paimon: what an overwrite removes is taken back before its own rows come."""
    columns = pa.schema([*SCHEMA, pa.field("p", pa.string())])
    options = {"bucket": "2", "streaming-read-overwrite": "true", "changelog-producer": producer}
    options["deletion-vectors.enabled"] = vectors
    made = lake.create_table("k", columns, primary_key=["id", "p"], partition_by=["p"], options=options)

    def rows(v: str, *keys: tuple[int, str]) -> pa.Table:
        return pa.Table.from_pylist([{"id": i, "v": v, "p": p} for i, p in keys], schema=columns)

    made.upsert(rows("a", *((i, "x") for i in range(6)), (0, "y")))
    made.upsert(rows("b", (1, "x")))
    made.delete("id = 2")
    feed = ChangeStream(made._core, kinds=True)
    before = feed.latest()
    made.overwrite(rows("c", (1, "x"), (7, "x")), {"p": "x"})
    end = feed.step(before).end
    changes = told(feed, before, end)
    removed = [("-D", i, "b" if i == 1 else "a", "x") for i in (0, 1, 3, 4, 5)]
    assert sorted(changes) == [("+I", 1, "c", "x"), ("+I", 7, "c", "x"), *removed]
    assert [r[0] for r in changes if r[1] == 1] == ["-D", "+I"]
    assert sorted(told(ChangeStream(made._core, kinds=False), before, end)) == [(1, "c", "x"), (7, "c", "x")]

    at, parts = before, []
    while (step := feed.step(at, Limits(files=1))).end != at:
        parts += told(feed, at, step.end)
        at = step.end
    assert sorted(parts) == sorted(changes), "bucket by bucket"

    made.truncate({"p": "y"})
    assert told(feed, end, feed.latest()) == [("-D", 0, "a", "y")]
    made.alter_options(unset=["streaming-read-overwrite"])
    assert told(feed, before, feed.latest()) == []


def test_an_overwrite_after_expired_snapshots(lake: bitlake.Lake) -> None:
    made = keyed(lake, **{"streaming-read-overwrite": "true"})
    made.upsert(batch(1, 2))
    made.overwrite(batch(2, v="b"))
    feed = ChangeStream(made._core, kinds=True)
    made.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=2**60)
    with pytest.raises(NotFound):  # the files of the removed rows went with the snapshot before
        told(feed, StreamOffset(2), feed.latest())


def outlive(made: Table, *ids: int) -> None:
    """Expire snapshots as Paimon does where changelogs are kept longer: their files go to ``changelog``."""
    root = Path(made.path)
    (root / "changelog").mkdir(exist_ok=True)
    for number in ids:
        path = root / f"snapshot/snapshot-{number}"
        (root / "manifest" / json.loads(path.read_text())["baseManifestList"]).unlink()
        path.rename(root / f"changelog/changelog-{number}")
    (root / "snapshot/EARLIEST").write_text(str(ids[-1] + 1))


@pytest.mark.parametrize("producer", [exhaustive("none"), "input"])
def test_changes_that_outlive_their_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer: str) -> None:
    """A stream from before the earliest snapshot reads long-lived changelogs, as in Paimon."""
    made = keyed(bitlake.connect(str(tmp_path)), changelog_producer=producer, write_only="true")
    for number in range(1, 6):
        monkeypatch.setattr(_clock, "now_ms", lambda at=number: at * 1000)
        made.upsert(batch(number, v="a"))
        made.upsert(batch(number, v="b"), ["+U"])
    monkeypatch.undo()
    whole = ChangeStream(made._core, kinds=True)
    starts = {number: told(whole, whole.at(number), whole.latest()) for number in range(1, 12)}
    outlive(made, *range(1, 7))

    made = bitlake.connect(str(tmp_path)).table("k")
    feed = ChangeStream(made._core, kinds=True)
    for number, rows in starts.items():
        start = feed.at(number)
        assert told(feed, start, feed.step(start).end) == rows
        assert told(feed, start, feed.step(start, Limits(files=1000)).end) == rows
    for millis, number in ((0, 1), (2000, 3), (3500, 7), (4000, 7), (9000, 11)):
        assert feed.since(millis) == StreamOffset(number)
    made.history.reset_consumer("c", 2)
    assert made.history.consumers() == {"c": 2}
    with pytest.raises(NotFound, match="cannot begin at snapshot 3"):
        feed.at(3, full=True)

    Path(made.path, "changelog/changelog-2").unlink()
    with pytest.raises(NotFound, match="cannot begin at snapshot 2"):
        feed.at(2)
    with pytest.raises(NotFound, match="stands at snapshot 2, which has expired"):
        told(feed, feed.at(1), feed.latest())
    with pytest.raises(NotFound, match="cannot resume at snapshot 2"):
        made.history.reset_consumer("c", 2)


@pytest.mark.parametrize("producer", [exhaustive("input"), "lookup", exhaustive("full-compaction")])
def test_changelogs_of_an_altered_table_that_outlive_their_snapshots(tmp_path: Path, producer: str) -> None:
    """Bug: the stream failed, since the files before the change had expired, although the producer was the same."""
    made = keyed(bitlake.connect(str(tmp_path)), changelog_producer=producer)
    made.alter_options({"snapshot.time-retained": "5 min"})
    for number in range(1, 4):
        made.upsert(batch(number, v="a"))
        made.upsert(batch(number, v="b"), ["+U"])
        made.maintenance.compact(full=True)
    last = made.snapshot.id  # type: ignore[union-attr]
    whole = ChangeStream(made._core, kinds=True)
    starts = {number: told(whole, whole.at(number), whole.latest()) for number in range(1, last + 1)}
    assert starts[1]
    outlive(made, *range(1, last - 1))
    forget()
    feed = ChangeStream(bitlake.connect(str(tmp_path)).table("k")._core, kinds=True)
    for number, rows in starts.items():
        assert told(feed, feed.at(number), feed.latest()) == rows


def test_a_producer_that_changed_among_changelogs_that_outlived_their_snapshots(tmp_path: Path) -> None:
    """Rows that waited for a compaction have expired: the stream says so rather than leaving them out."""
    made = keyed(bitlake.connect(str(tmp_path)), changelog_producer="lookup", write_only="true")
    made.upsert(batch(1))
    made.alter_options({"changelog-producer": "input"})
    made.upsert(batch(2))
    made.upsert(batch(3))
    outlive(made, 1, 2)
    forget()
    feed = ChangeStream(bitlake.connect(str(tmp_path)).table("k")._core, kinds=True)
    with pytest.raises(NotFound, match="stands at snapshot 2, which has expired"):
        told(feed, feed.at(1), feed.latest())
    assert told(feed, feed.at(3), feed.latest())


def test_snapshots_are_read_once_they_are_old_enough(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option ``streaming.read.snapshot.delay`` was ignored."""
    table.alter_options({"streaming.read.snapshot.delay": "10 min"})
    feed = ChangeStream(table._core, kinds=False)
    times = [s.time_millis for s in table.history.snapshots()]
    for at in (StreamOffset(2), StreamOffset(2, 1)):
        assert feed.step(at).end == feed.step(at, Limits(1)).end == at
    # The rows that a stream begins with do not wait.
    assert feed.step(feed.full()).end.snapshot == 6
    monkeypatch.setattr(_clock, "now_ms", lambda: times[3] + 600_000)
    old = sum(t <= times[3] for t in times)
    assert feed.step(StreamOffset(2)).end.snapshot == old + 1
    monkeypatch.setattr(_clock, "now_ms", lambda: times[4] + 600_000)
    assert feed.step(StreamOffset(2)).end == feed.step(StreamOffset(2), Limits()).end == StreamOffset(6)
