"""How far long jobs are, shown to whoever waits for them: a bar in a terminal or notebook, and nothing elsewhere.

A statement, or a method of a table, opens a :func:`job`; a runner counts its items for the job that is open where it
runs (:func:`counting`).  What is shown is decided in :mod:`bitlake.progress.board`.
"""

from bitlake.progress.jobs import Job, counting, job, of_items, say, tracked

__all__ = ["Job", "counting", "job", "of_items", "say", "tracked"]
