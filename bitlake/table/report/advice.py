"""What a report recommends: each by a simple threshold, which the page names, with the SQL to run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bitlake import _clock
from bitlake.expressions.sql_text import quote
from bitlake.formatting import counted, human_bytes, share_words
from bitlake.metadata import expiry_options as xo
from bitlake.metadata import options as opt
from bitlake.schema.partition_age import PartitionAge
from bitlake.table.partition_expiry import expired_partitions
from bitlake.table.state import TableState
from bitlake.table.tags import list_tags

if TYPE_CHECKING:
    from bitlake.table.report.facts import TableReport


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something is recommended; shares are 0 to 1.  What is compacted says the table's options, and not these.

    ``deleted``: deleted rows that only a full compaction takes out.  ``snapshots``: that are kept.  ``manifests``:
    files that planning opens.  ``skipping``: scans with conditions that skip less want an index or another order.
    """

    deleted: float = 0.1
    snapshots: int = 100
    manifests: int = 100
    skipping: float = 0.5


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do: what, why, and the statements that do it."""

    title: str
    why: str
    sql: tuple[str, ...]


def actions(report: TableReport, state: TableState) -> TableReport:
    """The report with what it recommends, the most urgent first."""
    name = quote(report.name)
    found = [*_indexes(report, name), *_files(report, name), *_history(report, state, name), *_scans(report, name)]
    return replace(report, actions=tuple(found))


def _files(report: TableReport, table: str) -> list[Action]:
    limits, total, found = report.thresholds, report.total, []
    if report.due.files or report.due.postponed:
        call = f"CALL sys.compact(table => {table}, compact_strategy => 'minor')"
        found.append(Action(*_due(report), (call,)))
    elif report.due_full.deleted >= limits.deleted * max(total.rows, 1):
        share = share_words(report.due_full.deleted, total.rows)
        why = f"{counted(report.due_full.deleted, 'row')} ({share}) are deleted, and still stored"
        call = f"CALL sys.compact(table => {table}, compact_strategy => 'full')"
        found.append(Action("Take deleted rows out", why, (call,)))
    if report.manifests[0] > limits.manifests and report.manifests[1] / report.manifests[0] < (2 << 20):
        why = f"planning opens {report.manifests[0]:,} manifests of {human_bytes(report.manifests[1])} together"
        found.append(Action("Put manifests together", why, (f"CALL sys.compact_manifest(table => {table})",)))
    return found


def _due(report: TableReport) -> tuple[str, str]:
    """What a compaction that is due does, and why."""
    due, total = report.due, report.total
    some = f"{counted(due.files, 'file')} of {total.files:,} ({human_bytes(due.size)})"
    if due.postponed:
        waiting = f"the rows of {counted(due.postponed, 'file')} have no bucket yet, and are not read before they do"
        return "Compact the table", waiting
    if report.primary_keys:
        level = f", of which {human_bytes(due.level_0)} are on level 0" if due.level_0 else ""
        return "Merge the newest files", f"{some} are due to be merged by key{level}: until then reading merges them"
    gone = f"{counted(due.deleted, 'row')} of them are deleted, and still stored" if due.deleted else ""
    if gone and not due.small:
        return "Take deleted rows out", f"of {some} {gone}"
    why = f"{some} are to be put together: each is opened, and has statistics and an index of its own"
    return "Put small files together", f"{why}; {gone}" if gone else why


def _indexes(report: TableReport, table: str) -> list[Action]:
    build = (f"CALL sys.rewrite_file_index(table => {table})",)
    found = []
    if report.index_problems:
        why = f"an index cannot be read, so its file is always scanned: {report.index_problems[0]}"
        found.append(Action("Build damaged indexes anew", why, build))
    missing = [i for i in report.indexes if i.wanted and i.files < report.total.files]
    if missing:
        worst = min(missing, key=lambda i: i.files)
        why = (
            f"the options ask for {worst.kind} of {worst.column}, and {worst.files:,} of "
            f"{counted(report.total.files, 'file')} have it"
        )
        found.append(Action("Build indexes that are missing", why, build))
    left = [i for i in report.indexes if not i.wanted]
    if left and not missing:
        size = sum(i.size for i in left)
        names = ", ".join(f"{i.kind} of {i.column}" for i in left[:3])
        why = f"the options do not ask for {names} (any more): {human_bytes(size)}"
        found.append(Action("Drop indexes that nobody asks for", why, build))
    return found


def _history(report: TableReport, state: TableState, table: str) -> list[Action]:
    found = []
    if report.snapshots > report.thresholds.snapshots:
        keep = min(state.schema.opts.of(opt.SNAPSHOT_RETAINED_MIN), report.thresholds.snapshots)
        why = f"{report.snapshots:,} snapshots are kept, and every file that any of them needs; none expires by itself"
        call = f"CALL sys.expire_snapshots(table => {table}, retain_max => {keep}"
        found.append(Action("Expire old snapshots", why, (f"{call}, dry_run => true)", f"{call})")))
    age = PartitionAge.of(state.schema.options)
    if age is not None and report.partition_keys:
        old = expired_partitions(state, age)
        if old:
            why = f"{counted(len(old), 'partition')} are older than '{xo.TIME.name}' says"
            call = f"CALL sys.expire_partitions(table => {table}"
            found.append(Action("Expire old partitions", why, (f"{call}, dry_run => true)", f"{call})")))
    over = [t for t in list_tags(state) if t.expired(_clock.local_ms())]
    if over:
        why = f"the time of {counted(len(over), 'tag')} is over, and they still keep their files"
        found.append(Action("Delete tags that are over", why, (f"CALL sys.expire_tags(table => {table})",)))
    return found


def _scans(report: TableReport, table: str) -> list[Action]:
    if report.scans is None:
        return []
    poor = [a for a in report.scans.asked if a.what != "no condition" and a.skipped < report.thresholds.skipping]
    if not poor:
        return []
    why = (
        f"scans that ask '{poor[0].what}' read {share_words(poor[0].bytes_touched, poor[0].bytes_total)} of the table: "
        "an index or an order of rows may help; the advisor tries which"
    )
    return [Action("Ask for advice on indexes", why, (f"CALL sys.advise(table => {table}, recorded => true)",))]
