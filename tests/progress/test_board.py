"""Where jobs are shown: on standard error in a terminal, in notebooks; and nothing of it anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long import exhaustive

from bitlake import progress as progress_module
from bitlake.progress import Board, Job, Notebook, job, place
from bitlake.runtime import LocalRunner

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(how: str, terminal: bool, plain: bool = True, **env: str) -> tuple[str, str]:
    """What ``watched.py`` prints, and what its standard error shows, ``plain`` without escape sequences."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    given = {k: v for k, v in os.environ.items() if k != progress_module.ENVIRONMENT}
    given |= {"TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": str(ROOT), **env}
    child = subprocess.Popen(
        [sys.executable, str(HERE / "watched.py"), how],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=given,
        text=True,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # a terminal whose other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert child.stdout is not None
    said = child.stdout.read()
    child.stdout.close()
    assert child.wait(60) == 0, shown.decode()
    text = shown.decode()
    return said, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text) if plain else text


def test_a_terminal_shows_a_bar_and_loses_it_again() -> None:
    said, shown = run("normal", terminal=True)
    assert said == "3 True\n"
    assert "compacting default.t" in shown
    assert re.search(r"3/3 files  (\d+) B/\1 B  3 rows 0:\d\d", shown), shown


@pytest.mark.parametrize("columns", [40, exhaustive(80), exhaustive(120)])
def test_a_bar_fits_its_terminal(columns: int) -> None:
    """Bug: at 40 columns the time was cut off; the label is shortened instead, and the bar leaves room for it."""
    _, shown = run("normal", terminal=True, COLUMNS=str(columns))
    [*_, last] = re.findall(r"[^\r\n]*3/3 files[^\r\n]*", shown)
    assert len(last) == columns and last.startswith("compacting default.t")
    assert re.search(r" 3/3 files( .*)? 0:\d\d$", last)
    assert ("━" in last, " B/" in last) == (columns >= 60, columns >= 60)


@pytest.mark.parametrize("colours", [exhaustive(True), False])
def test_a_bar_has_no_colours_with_no_color(colours: bool) -> None:
    _, shown = run("normal", terminal=True, plain=False, TERM="xterm-256color", NO_COLOR="" if colours else "1")
    assert "3/3 files" in shown and bool(re.search(r"\x1b\[[0-9;]*[34]8;", shown)) is colours


@pytest.mark.parametrize(
    ("how", "terminal", "env"),
    [
        ("normal", False, {}),
        ("normal", True, {"BITLAKE_PROGRESS": "0"}),
        exhaustive("normal", True, {"TERM": "dumb"}),
        exhaustive("silent", True, {}),
    ],
)
def test_nothing_is_shown_elsewhere(how: str, terminal: bool, env: dict[str, str]) -> None:
    """Not a byte, and rich is not loaded for it."""
    assert run(how, terminal, **env) == ("3 False\n", "")


def test_a_job_that_fails_takes_its_bar_with_it_and_warnings_stand_above() -> None:
    said, shown = run("fails", terminal=True)
    assert said.splitlines()[1] == "failed [] None"
    assert "failing [bold]" in shown
    assert re.search(r"^.*UserWarning: above", shown, re.MULTILINE)


# --- in this process --------------------------------------------------------------------------------------------------


class Recorder:
    """A screen that remembers."""

    def __init__(self, fails: bool = False) -> None:
        self.drawn: list[list[str]] = []
        self.closed = 0
        self.fails = fails

    def draw(self, jobs: list[Job]) -> None:
        if self.fails:
            raise OSError("the terminal is gone")
        self.drawn.append([f"{j.label} {j.done}/{j.total}" for j in jobs])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A board of its own that shows jobs at once, on a screen that remembers."""
    made, own = Recorder(), Board()
    monkeypatch.setattr(progress_module, "_AFTER", 0.0)
    monkeypatch.setattr(progress_module, "place", lambda: lambda: made)
    monkeypatch.setattr(progress_module, "board", own)
    tick = Job.tick

    def drawn(self: Job, item: Any) -> None:
        tick(self, item)
        with own._changed:
            own._draw()

    monkeypatch.setattr(Job, "tick", drawn)
    yield made
    assert own._jobs == []


def test_jobs_of_one_time_are_shown_together(screen: Recorder) -> None:
    def inner(n: int) -> None:
        with job("second"):
            LocalRunner(1).run([n], lambda i: i)

    with job("first"):
        LocalRunner(2).run([1, 2], inner)  # threads of their own have jobs of their own
    assert any(len(d) == 2 and d[0].startswith("first") and d[1].startswith("second") for d in screen.drawn)
    assert screen.closed == 1


def test_a_screen_that_fails_is_not_asked_again_and_the_job_goes_on(screen: Recorder) -> None:
    screen.fails = True
    with job("first"):
        assert LocalRunner(1).run([1, 2], lambda i: i * 2) == [2, 4]
    assert screen.drawn == [] and screen.closed == 1


def test_short_jobs_are_not_shown(screen: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_AFTER", 3600.0)
    with job("first"):
        LocalRunner(1).run([1, 2], lambda i: i)
    assert screen.drawn == []


def test_a_notebook_gets_html_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, made: str) -> None:
            shown.append(made)

    def display(made: str, display_id: bool) -> Handle:
        assert display_id
        shown.append(made)
        return Handle()

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML, ipython.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.delenv(progress_module.ENVIRONMENT, raising=False)
    found = place()
    assert found is not None
    screen = found()
    assert isinstance(screen, Notebook)
    one = Job("compacting <t>")
    screen.draw([one])
    one.begin([1, 2])
    one.tick(1)
    screen.draw([one])
    screen.close()
    assert "compacting &lt;t&gt;" in shown[0] and "<progress></progress>" in shown[0]
    assert '<progress max="2" value="1"></progress>' in shown[1] and "1/2" in shown[1]
    assert shown[2] == ""
