"""Findings of a verification: each code with its meaning and remedy, and the report.

Codes are stable: scripts may compare them.  ``docs/verify.md`` lists them.  A :class:`VerifyReport` holds the
findings and how much was checked, and prints as text or JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bitlake.errors import BitlakeError, CorruptError
from bitlake.formatting import counted, human_bytes, printable

Severity = Literal["error", "warning"]
_COPY = "restore the file from a copy of the table"
_ROLL = "roll back to a sound snapshot, or copy the readable rows to a new table"
_REPAIR = "repair rewrites it"


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of fault.

    ``severity``: an *error* makes readers fail or answer wrongly, here or in Paimon; a *warning* does not.
    ``remedy``: what to do about it.
    """

    name: str
    severity: Severity
    meaning: str
    remedy: str


def _errors(remedy: str, **codes: str) -> list[Code]:
    return [Code(name.replace("_", "-"), "error", meaning, remedy) for name, meaning in codes.items()]


def _warnings(remedy: str, **codes: str) -> list[Code]:
    return [Code(name.replace("_", "-"), "warning", meaning, remedy) for name, meaning in codes.items()]


CODES: dict[str, Code] = {
    c.name: c
    for c in (
        # Schemas, snapshots, tags, branches, hints.
        *_errors(
            _COPY,
            schema_missing="a schema that a snapshot or data file needs is missing",
            schema_unreadable="a schema file cannot be read",
            schema_wrong="a schema contradicts its file name or itself",
            snapshot_missing="a snapshot between the first and the last is missing",
            snapshot_unreadable="a snapshot file cannot be read",
            snapshot_wrong="a snapshot contradicts its file name, or holds a value that Paimon does not know",
        ),
        *_errors(_ROLL, snapshot_count_wrong="a snapshot's record counts differ from those of its files"),
        *_errors(
            "delete the tag, or recreate it from an existing snapshot",
            tag_unreadable="a tag's file cannot be read",
        ),
        *_warnings(
            "recreate the tag if it should hold the table's own snapshot",
            tag_differs="a tag differs from the snapshot with the same id",
        ),
        *_errors("delete the branch", branch_wrong="a branch has no schema"),
        *_warnings(
            "call fast_forward of the same branch again to complete it",
            fast_forward_unfinished="a fast-forward is running or interrupted: main's snapshots are partly replaced",
        ),
        *_errors(_REPAIR, hint_ahead="LATEST names a missing snapshot, and Paimon trusts it"),
        *_warnings(_REPAIR, hint_wrong="LATEST or EARLIEST does not name the last or first snapshot"),
        *_warnings(
            "reset the consumer (CALL sys.reset_consumer), or delete it",
            consumer_unreadable="a consumer's file cannot be read",
            consumer_wrong="a consumer would resume at a missing snapshot",
        ),
        *_warnings(
            "run ANALYZE TABLE to write new statistics",
            statistics_missing="a snapshot's statistics file is missing",
            statistics_unreadable="a snapshot's statistics file cannot be read",
        ),
        # Manifests.
        *_errors(
            f"{_COPY}, or {_ROLL}",
            list_missing="a manifest list is missing",
            list_unreadable="a manifest list cannot be read",
            list_size_wrong="a manifest list's size differs from the one in its snapshot",
            manifest_missing="a manifest is missing",
            manifest_unreadable="a manifest cannot be read",
            manifest_size_wrong="a manifest's size differs from the one in its list",
        ),
        *_errors(
            "compact the manifests (CALL sys.compact_manifest) to write new ones",
            manifest_count_wrong="a manifest's entry count differs from the one in its list",
            manifest_stats_wrong="a list's partitions, buckets, levels or schema do not cover a whole manifest",
        ),
        *_errors(
            _ROLL,
            base_differs="a snapshot does not start with the files that the previous snapshot ended with",
            file_added_twice="a data file is added although the table already has it",
            file_deleted_unknown="a data file is deleted although the table does not have it",
            file_added_again="a data file is added after it was deleted: readers treat it as deleted",
        ),
        # Data files.
        *_errors(
            f"{_COPY}, or remove the file from the table (remove_unexisting_files), which loses its rows",
            data_missing="a data file is missing",
            data_size_wrong="a data file's size differs from the one in its manifest",
            data_unreadable="a data file cannot be read",
        ),
        *_errors(
            "overwrite the partition from its source: the file's manifest entry is not reliable",
            row_count_wrong="a data file's row count differs from the one in its manifest",
            delete_count_wrong="a data file's number of delete rows differs from the one in its manifest",
            key_range_wrong="a data file's first or last key differs from the one in its manifest",
            key_order_wrong="a data file's rows are not sorted by key",
            key_twice="a data file has the same key twice",
            sequence_wrong="a data file's sequence numbers differ from those in its manifest",
            row_kind_wrong="a data file has rows of an unknown kind",
            null_not_allowed="a data file has NULL in a NOT NULL column",
            stats_unreadable="a data file's statistics cannot be read",
            stats_hide_values="a data file has values outside its statistics: queries miss them",
            null_count_wrong="a data file's NULL count differs from the one in its statistics",
            bucket_wrong="a data file is in the wrong bucket for its rows, or in a bucket that does not exist",
            bucket_count_mixed="data files of a partition were written for different numbers of buckets",
            partition_wrong="a data file is in the wrong partition for its rows",
            level_wrong="a data file is at a level that its table does not have",
            levels_overlap="data files of one level above 0 overlap by key",
            extra_file_missing="an extra file of a data file is missing",
        ),
        *_errors(
            "overwrite the partition with its own rows (INSERT OVERWRITE): reading whole files needs no page index",
            page_index_wrong="a Parquet file's page index contradicts its pages or rows: queries miss rows or fail",
        ),
        *_errors(
            "compact the table fully (CALL sys.compact) to keep the last row of each key",
            key_in_two_files="a key has two rows above level 0, where readers of this table do not merge",
        ),
        # File indexes.
        *_errors(
            "repair rebuilds it from the data file, or drops it",
            index_missing="a data file's index file is missing",
            index_unreadable="a file index cannot be read, or its checksum does not match",
            index_wrong="a file index disagrees with the data file's rows: queries miss rows",
            index_twice="a data file names more than one index file",
        ),
        *_warnings(
            "repair drops it",
            index_unknown="a file index has an unknown index type, column or column type: it is not used",
        ),
        # Table indexes.
        *_errors(
            f"{_COPY}, or {_ROLL}",
            index_manifest_missing="an index manifest is missing",
            index_manifest_unreadable="an index manifest cannot be read",
        ),
        *_errors(
            f"{_COPY}: without it, deleted rows come back",
            vectors_missing="a deletion vector file is missing",
            vectors_size_wrong="a deletion vector file's size differs from the one in the index manifest",
            vectors_unreadable="a deletion vector file cannot be read",
            vectors_count_wrong="a deletion vector file's number of vectors differs from the one in the index manifest",
            vector_unreadable="a deletion vector cannot be read",
            vector_checksum_wrong="a deletion vector's checksum does not match",
            vector_out_of_range="a deletion vector deletes rows that its data file does not have",
            vector_cardinality_wrong="a deletion vector's cardinality differs from the one in the index manifest",
            vector_of_absent_file="a deletion vector belongs to a data file that the snapshot does not have",
            vector_misplaced="a deletion vector is listed under a different bucket from its data file",
            vector_twice="a data file has two deletion vectors",
        ),
        *_errors(_ROLL, vector_lost="a data file has lost all or part of its deletion vector: deleted rows are back"),
        *_errors(
            "set 'deletion-vectors.enabled' again if deleted rows have come back",
            vectors_not_applied="data files have deletion vectors, but the table's schema does not enable them",
        ),
        *_errors(
            "repair rebuilds it from the bucket's rows",
            hash_missing="a HASH index file is missing, or a bucket has none",
            hash_unreadable="a HASH index file cannot be read",
            hash_incomplete="a HASH index lacks keys of its bucket: writers would put them in another bucket",
        ),
    )
}
"""Every code by name."""


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

    ``code``: of :data:`CODES`; ``path``: the file at fault; ``what``: what is wrong, in
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
        """The advice for it."""
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
"""The things that a report counts."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result of verifying a table.

    ``checked``: how many of each of :data:`COUNTED` were looked at; ``more``: findings by code that were counted but
    not kept; ``orphans``: files that nothing names and their bytes, which is not a fault (None: not looked for, or
    not known because something that names files cannot be read).  ``deep``: whether data files and indexes were read.
    ``last``: the last snapshot of main, then of each branch, as findings name them.

    >>> report = table.maintenance.verify()
    >>> report.ok, report.errors, report.warnings, report.codes
    (True, (), (), ())
    >>> print(report.text())
    Table 'default.orders': no fault found.
    ...
    >>> report.to_dict()["orphans"]
    {'files': 1, 'bytes': 4}
    """

    table: str
    deep: bool
    findings: tuple[Finding, ...]
    checked: Mapping[str, int]
    more: Mapping[str, int] = field(default_factory=dict)
    orphans: tuple[int, int] | None = None
    last: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"VerifyReport({self.table}: {counted(len(self.findings), 'finding')})"

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
        """Whether the report has no errors; it may have warnings."""
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
        """Return the report as text."""
        return printable("\n".join(_lines(self)))

    def __str__(self) -> str:
        return self.text()


def _lines(report: VerifyReport) -> Iterable[str]:
    errors, warnings = len(report.errors), len(report.warnings)
    more = sum(report.more.values())
    if not errors and not warnings:
        yield f"Table '{report.table}': no fault found."
    else:
        counts = [counted(n, w) for n, w in ((errors, "error"), (warnings, "warning")) if n]
        yield f"Table '{report.table}': {' and '.join(counts)}{f', and {more:,} more like these' if more else ''}."
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
