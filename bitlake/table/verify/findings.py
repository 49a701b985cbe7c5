"""What verifying a table found: findings, how much was checked, and both as text or JSON."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bitlake.errors import BitlakeError, CorruptError
from bitlake.formatting import counted, human_bytes, printable
from bitlake.table.verify.codes import CODES, Severity

MOST_FINDINGS = 1000
"""Findings kept of one code; more are only counted, so that a table whose folder is gone does not fill the memory."""

_GO = {
    "index-missing": "reading them needs the whole file",
    "index-unreadable": "reading them needs the whole file",
    "index-unknown": "it is not used",
    "index-twice": "reading them may fail",
    "index-wrong": "what reads them by this column may miss rows",
    "hash-missing": "nobody needs it: writers take the latest one",
    "hash-unreadable": "nobody needs it: writers take the latest one",
    "hash-incomplete": "nobody needs it: writers take the latest one",
}
"""Indexes that only older snapshots have, and what that means for these."""
_WRONG = frozenset({"index-twice", "index-wrong"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    ``code``: of :data:`bitlake.table.verify.codes.CODES`; ``path``: the file at fault; ``what``: what is wrong, in
    words; ``column`` and ``offset`` (bytes in the file) where known; ``snapshots``: the moments that it concerns, such
    as ``snapshot 3`` or ``tag monday``.  ``past``: an index that no line's last snapshot has, and that goes with
    the older ones: a warning, unless it makes readers of these answer wrongly.
    """

    code: str
    path: str
    what: str
    column: str | None = None
    offset: int | None = None
    snapshots: tuple[str, ...] = ()
    past: bool = False

    @property
    def severity(self) -> Severity:
        """``error`` or ``warning``."""
        return "warning" if self.past and self.code not in _WRONG else CODES[self.code].severity

    @property
    def remedy(self) -> str:
        """What to do about it."""
        if not self.past:
            return CODES[self.code].remedy
        tagged = any(m.startswith("tag ") for m in self.snapshots)
        return (
            "the latest snapshot does not have it, and older ones never change: it goes when these snapshots expire "
            f"(CALL sys.expire_snapshots, bitlake expire){' and these tags are deleted' * tagged}; until then "
            f"{_GO[self.code]}"
        )

    def of_past(self, last: frozenset[str]) -> Finding:
        """The same; as one of the ``past`` if none of these moments, the last of each line, has the index."""
        goes = self.code in _GO and self.snapshots and not last & set(self.snapshots)
        return replace(self, past=True) if goes else self

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "severity": self.severity,
            "code": self.code,
            "file": self.path,
            "what": self.what,
            "column": self.column,
            "offset": self.offset,
            "snapshots": list(self.snapshots),
            "remedy": self.remedy,
        }


def of_error(code: str, path: str, error: BitlakeError, column: str | None = None) -> Finding:
    """A finding that says what an error says, without the path, which stands beside it."""
    if isinstance(error, CorruptError):
        return Finding(code, path, error.what, column, error.offset)
    return Finding(code, path, str(error).removeprefix(f"{path}: "), column)


COUNTED = (
    "snapshots", "tags", "branches", "schemas", "manifest_lists", "manifests", "index_manifests", "data_files", "rows",
    "bytes", "file_indexes", "vectors", "hash_files", "statistics", "consumers",
)  # fmt: skip
"""What a report counts."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of verifying a table.

    ``checked``: how many of each of :data:`COUNTED` were looked at; ``more``: findings by code that were counted but
    not kept; ``orphans``: files that nothing names and their bytes, which is no fault (None: not looked for, or not
    known because something that names files cannot be read).  ``deep``: whether data files and indexes were read.
    ``last``: the last snapshot of main, then of each branch, as findings name them.
    """

    table: str
    deep: bool
    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    more: Mapping[str, int] = field(default_factory=dict)
    orphans: tuple[int, int] | None = None
    last: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make readers fail or answer wrongly."""
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The other findings."""
        return tuple(f for f in self.findings if f.severity == "warning")

    @property
    def ok(self) -> bool:
        """Whether there is no error; there may be warnings."""
        return not self.errors

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes found, each once, sorted."""
        return tuple(sorted({f.code for f in self.findings}))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.table,
            "ok": self.ok,
            "deep": self.deep,
            "findings": [f.to_dict() for f in self.findings],
            "more": dict(self.more),
            "checked": dict(self.checked),
            "orphans": None if self.orphans is None else {"files": self.orphans[0], "bytes": self.orphans[1]},
        }

    def text(self) -> str:
        """For people."""
        return printable("\n".join(_lines(self)))

    def __str__(self) -> str:
        return self.text()


def _lines(report: VerifyReport) -> Iterable[str]:
    errors, warnings = len(report.errors), len(report.warnings)
    more = sum(report.more.values())
    if not errors and not warnings:
        yield f"Table '{report.table}': no fault found."
    else:
        told = [counted(n, w) for n, w in ((errors, "error"), (warnings, "warning")) if n]
        yield f"Table '{report.table}': {' and '.join(told)}{f', and {more:,} more like these' if more else ''}."
    for finding in report.findings:
        yield ""
        place = "" if finding.column is None else f", column '{finding.column}'"
        place += "" if finding.offset is None else f", byte {finding.offset:,}"
        yield f"{finding.severity.upper():<8} {finding.code}"
        yield f"         {finding.path}{place}"
        yield f"         {finding.what}"
        if finding.snapshots:
            yield f"         in {_some(finding.snapshots)}"
        yield f"         → {finding.remedy}"
    yield ""
    yield f"Checked  {', '.join(_checked(report.checked)) or 'nothing'}."
    if not report.deep:
        yield "         Only metadata, sizes and footers were read; a deep run reads the data and every index, too."
    if report.orphans is not None and report.orphans[0]:
        files, size = report.orphans
        strays = f"{counted(files, 'file')} of {human_bytes(size)} that nothing names"
        yield f"Orphans  {strays}: no fault; remove_orphan_files deletes them."


def _checked(counts: Mapping[str, int]) -> Iterable[str]:
    for name, singular in _NAMES.items():
        n = counts.get(name, 0)
        if not n:
            continue
        if name == "data_files":
            size = human_bytes(counts.get("bytes", 0))
            yield f"{counted(n, singular)} ({counted(counts.get('rows', 0), 'row')}, {size})"
        else:
            yield counted(n, singular)


_NAMES = {
    "snapshots": "snapshot",
    "tags": "tag",
    "branches": "branch",
    "schemas": "schema",
    "manifest_lists": "manifest list",
    "manifests": "manifest",
    "index_manifests": "index manifest",
    "data_files": "data file",
    "file_indexes": "file index",
    "vectors": "deletion vector",
    "hash_files": "HASH index",
    "statistics": "statistics file",
    "consumers": "consumer",
}


def _some(names: Sequence[str]) -> str:
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:2])} … {names[-1]} ({len(names)} in all)"


class Book:
    """Gathers findings and counts; the same fault seen at several moments is one finding.  Safe to share."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, str | None], Finding] = {}
        self._kept: dict[str, int] = {}
        self._lock = threading.Lock()
        self.more: dict[str, int] = {}
        self.counts: dict[str, int] = dict.fromkeys(COUNTED, 0)

    def add(self, finding: Finding, moment: str | None = None) -> None:
        """Note a fault, and the moment that it was seen at."""
        key = (finding.code, finding.path, finding.what, finding.column)
        with self._lock:
            known = self._found.get(key)
            if known is None:
                if self._kept.get(finding.code, 0) >= MOST_FINDINGS:
                    self.more[finding.code] = self.more.get(finding.code, 0) + 1
                    return
                self._kept[finding.code] = self._kept.get(finding.code, 0) + 1
                known = finding
            moments = known.snapshots
            if moment is not None and moment not in moments:
                moments = (*moments, moment)
            self._found[key] = replace(known, snapshots=moments)

    def add_all(self, findings: Iterable[Finding], moments: Sequence[str] = ()) -> None:
        """Note faults that were all seen at these moments."""
        for finding in findings:
            self.add(finding)
            for moment in moments:
                self.add(finding, moment)

    def count(self, what: str, n: int = 1) -> None:
        """Count something of :data:`COUNTED` as checked."""
        with self._lock:
            self.counts[what] += n

    def findings(self) -> tuple[Finding, ...]:
        """Errors first, otherwise in the order they came."""
        return by_severity(self._found.values())


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, otherwise in their order."""
    return tuple(sorted(findings, key=lambda f: f.severity == "warning"))
