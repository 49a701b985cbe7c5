"""A report of a table, from its metadata alone: where its bytes are, what slows it down, and what to do about it."""

from bitlake.tools.report.facts import TableReport, gather

__all__ = ["TableReport", "gather"]
