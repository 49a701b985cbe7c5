"""Jobs in a notebook: HTML under the cell, updated in place; it needs no widgets."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bitlake.progress.words import amounts, elapsed, heading

if TYPE_CHECKING:
    from bitlake.progress.jobs import Job


def html_of(jobs: list[Job]) -> str:
    """Each job as a line with the browser's own progress element, which follows light and dark."""
    lines = []
    for job in jobs:
        # An element without a value says: at work, nobody knows how long.
        known = "" if job.total is None else f' max="{max(job.total, 1)}" value="{job.done}"'
        words = "  ".join(filter(None, (amounts(job), elapsed(job))))
        lines.append(
            f'<div style="display: flex; gap: 0.8em; align-items: center"><span>{escape(heading(job))}</span>'
            f'<progress{known}></progress><span style="white-space: pre">{escape(words)}</span></div>'
        )
    return "".join(lines)


class Notebook:
    """Shows HTML with IPython.  Mutable."""

    def __init__(self) -> None:
        self._ipython = import_module("IPython.display")
        self._shown: Any = None

    def draw(self, jobs: list[Job]) -> None:
        """Show these jobs as they are now, and no others."""
        made = self._ipython.HTML(html_of(jobs))
        if self._shown is None:
            self._shown = self._ipython.display(made, display_id=True)
        else:
            self._shown.update(made)

    def close(self) -> None:
        """Take them away."""
        if self._shown is not None:
            self._shown.update(self._ipython.HTML(""))
