"""What jobs count, and that nothing is counted where there are none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake import progress as progress_module
from bitlake.formatting import human_bytes
from bitlake.progress import Job, amounts, count_rows, counting, elapsed, heading, job, of_items, say, tracked
from bitlake.runtime import LocalRunner


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that would be shown, without a board."""
    jobs: list[Job] = []

    class Wall:
        def add(self, made: Job) -> None:
            jobs.append(made)

        def remove(self, gone: Job) -> None:
            assert gone in jobs

    monkeypatch.setattr(progress_module, "place", lambda: object)
    monkeypatch.setattr(progress_module, "board", Wall())
    return jobs


def test_without_a_watcher_nothing_is_wrapped() -> None:
    def fn(n: int) -> int:
        return n

    with job("a") as made, counting([1], fn) as counted:
        assert made is None
        assert counted is fn


def test_items_are_counted_with_what_they_stand_for(shown: list[Job]) -> None:
    seen: list[str] = []
    with job("a") as made:
        assert made is not None
        of_items("files", each=len, size=sum)
        LocalRunner(1).run([[1], [2, 3]], lambda item: seen.append(amounts(made)))
        assert amounts(made) == "", "what comes after the items is not counted"
        LocalRunner(1).run([7], lambda item: seen.append(amounts(made)))
    assert seen == ["0/3 files  0 B/6 B", "1/3 files  1 B/6 B", "0/1"]


def test_inner_runs_and_inner_jobs_are_part_of_the_outer(shown: list[Job]) -> None:
    totals: list[int | None] = []

    def inner(n: int) -> None:
        with job("b") as other:
            assert other is None
            say("no word from inside")
            of_items("nor here")
            LocalRunner(1).run(range(100), lambda i: i)
        totals.append(made.total if made else None)

    with job("a") as made:
        say("batch 1 of 2")
        LocalRunner(1).run([1, 2], inner)
        assert made is not None and heading(made) == "a, batch 1 of 2"
    assert totals == [2, 2]
    assert len(shown) == 1


def test_rows_are_counted_within_one_file(shown: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    add_rows = Job.add_rows

    def recorded(self: Job, written: int, read: int) -> None:
        add_rows(self, written, read)
        seen.append((self.label, amounts(self)))

    monkeypatch.setattr(Job, "add_rows", recorded)
    lake = bitlake.connect(str(tmp_path / "lake"))
    schema = pa.schema([("id", pa.int64())])
    table = lake.create_table("t", schema, options={"target-file-size": "1 gb"})
    batches = [pa.record_batch([pa.array(range(n * 70_000, (n + 1) * 70_000))], schema=schema) for n in range(5)]
    table.append(pa.RecordBatchReader.from_batches(schema, batches))
    assert len(table.dataset().files) == 1
    counts = [int(text.removesuffix(" rows").replace(",", "")) for label, text in seen if text.endswith(" rows")]
    assert counts == sorted(counts) and counts[-1] == 350_000 and len(counts) >= 3
    assert len({label for label, _ in seen}) == 1 and "default.t" in seen[0][0]

    seen.clear()
    table.indexes.create("id", "bloom-filter")
    table.indexes.rebuild()
    assert len(seen) >= 2 and seen[-1][1].startswith("0/1 ") and seen[-1][1].endswith("350,000 rows"), seen

    seen.clear()
    table.delete("id = 1")
    assert len(seen) >= 3 and seen[-1][1].startswith("0/1 ") and seen[-1][1].endswith("349,999 rows"), seen

    seen.clear()
    with job("reading"):
        assert table.to_arrow().num_rows == 349_999
    assert len(seen) >= 3 and seen[-1] == ("reading", "349,999 rows read")


def test_rows_of_items_in_other_threads_are_counted(shown: list[Job]) -> None:
    with job("a") as made:
        assert made is not None
        LocalRunner(2).run([1, 2, 3], lambda n: count_rows(written=n))
        assert (made.rows_written, amounts(made)) == (6, "6 rows")
    count_rows(written=5)
    assert made.rows_written == 6


def test_an_error_passes_through_and_closes_the_job(shown: list[Job]) -> None:
    with pytest.raises(ZeroDivisionError), job("a"):
        LocalRunner(2).run([1, 0, 1], lambda n: 1 // n)
    with job("b") as made:
        assert made is not None and not made.counts


def test_methods_that_are_jobs_keep_their_face(shown: list[Job]) -> None:
    class Thing:
        name = "db.t"
        shows_progress = True

        @tracked("doing")
        def do(self, n: int, *, twice: bool = False) -> int:
            """What it does."""
            return n * 2 if twice else n

    thing = Thing()
    assert thing.do(2, twice=True) == 4
    assert Thing.do.__doc__ == "What it does."
    assert [j.label for j in shown] == ["doing db.t"]
    thing.shows_progress = False
    assert thing.do(1) == 1 and len(shown) == 1


def test_words() -> None:
    made = Job("a")
    made.began -= 3723
    assert elapsed(made) == "1:02:03"
    made.began += 3600
    assert elapsed(made) == "2:03"
    assert [human_bytes(n) for n in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KB", "3.0 GB"]
