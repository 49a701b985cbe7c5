"""What jobs count, and that nothing is counted where there are none."""

from __future__ import annotations

import pytest

from bitlake import progress as progress_module
from bitlake.formatting import human_bytes
from bitlake.progress import Job, amounts, counting, elapsed, heading, job, of_items, say, tracked
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
