"""Jobs in a terminal: a line with a bar for each, on standard error, gone when the job is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from bitlake.formatting import printable
from bitlake.progress.words import amounts, elapsed, heading

if TYPE_CHECKING:
    from bitlake.progress.jobs import Job


class Terminal:
    """Draws with rich.  Mutable."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[amounts]}"),
            TextColumn("{task.fields[elapsed]}", style="dim"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            # Warnings stand above the bar; standard output is the program's own, and may be a pipe.
            redirect_stdout=False,
        )
        self._tasks: dict[Job, TaskID] = {}
        self._totals: dict[TaskID, int | None] = {}
        self._bars.start()

    def draw(self, jobs: list[Job]) -> None:
        """Show these jobs as they are now, and no others."""
        for gone in [j for j in self._tasks if j not in jobs]:
            self._bars.remove_task(self._tasks.pop(gone))
        for job in jobs:
            words: dict[str, Any] = {"amounts": amounts(job), "elapsed": elapsed(job)}
            label = escape(printable(heading(job), one_line=True))
            task = self._tasks.get(job)
            # rich takes a total of None for "leave it": what is no longer counted gets a new bar, which pulses.
            if task is not None and job.total is None and self._totals.get(task) is not None:
                self._bars.remove_task(task)
                task = None
            if task is None:
                task = self._tasks[job] = self._bars.add_task(label, True, job.total, job.done, **words)
            else:
                self._bars.update(task, description=label, total=job.total, completed=job.done, **words)
            self._totals[task] = job.total
        self._bars.refresh()

    def close(self) -> None:
        """Take the bars away."""
        self._bars.stop()
