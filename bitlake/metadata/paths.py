"""The one place that forms and parses the names of a table's files (table-format spec, section 1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bitlake import _clock
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.metadata.locations import allowing_root, refusal

POSTPONE_BUCKET = -2
_DIGITS = re.compile(r"^\d{1,19}$")
_SCAN_LOG = re.compile(r"^scan-log-\d{13}-[0-9a-f]{8}\.jsonl$")
_SEPARATORS = frozenset("/\\\0")
_RULE = "a file name must not be empty, '.' or '..', nor contain '/', '\\' or NUL"


def is_file_name(name: str) -> bool:
    """Whether a text is the bare name of a file: joined to a folder it names an entry of that folder."""
    return bool(name) and name not in (".", "..") and _SEPARATORS.isdisjoint(name)


def are_file_names(names: Collection[str]) -> bool:
    """:func:`is_file_name` of every name, by a few searches over all of them at once."""
    joined = "".join(names)
    if "/" in joined or "\\" in joined or "\0" in joined:
        return False
    return min(map(len, names), default=3) > 2 or all(map(is_file_name, names))


def check_file_names(names: Collection[str], what: str) -> None:
    """Raise :class:`CorruptError` for a name in metadata that is not a bare file name: its path could be anywhere.

    ``what`` names the kind of file.
    """
    if not are_file_names(names):
        bad = next(name for name in names if not is_file_name(name))
        raise CorruptError(f"invalid name {bad!r} of a {what}: {_RULE}")


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Paths of one table, or of one branch of it.

    ``root`` is the table's folder as a path or URI without a trailing slash; ``external_roots`` are other folders
    that may hold files of it, as :func:`bitlake.metadata.locations.check_roots` returns them; nothing looks at them
    before a path is outside of the table's folder, or files are deleted.
    """

    root: str
    branch: str | None = None
    external_roots: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", self.root.rstrip("/") or "/")
        if self.branch == "main":
            object.__setattr__(self, "branch", None)
        if self.branch is not None:
            _check_given(self.branch, "branch")

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that may hold the table's files."""
        return (self.root, *self.external_roots)

    def on_branch(self, name: str | None) -> TablePaths:
        """The paths of a branch of the same table; None is main."""
        return replace(self, branch=name)

    def external(self, path: str, what: str = "the file") -> str:
        """An external path, such as ``_EXTERNAL_PATH`` of a data file.

        Raises :class:`InvalidRequest` unless it is in the table's folder or below an external root.
        """
        allowed = is_file_name(path.rpartition("/")[2]) and any(
            allowing_root(path, roots) is not None for roots in ((self.root,), self.external_roots)
        )
        if not allowed:
            raise refusal(self.root, path, what)
        return path

    @property
    def branch_root(self) -> str:
        """Where schemas, snapshots and tags are: the table's folder, or its branch's."""
        return self.root if self.branch is None else f"{self.root}/branch/branch-{self.branch}"

    @property
    def schema_dir(self) -> str:
        """The folder of schema files."""
        return f"{self.branch_root}/schema"

    def schema(self, schema_id: int) -> str:
        """The file of a schema version."""
        return f"{self.schema_dir}/schema-{schema_id}"

    @property
    def snapshot_dir(self) -> str:
        """The folder of snapshot files."""
        return f"{self.branch_root}/snapshot"

    def snapshot(self, snapshot_id: int) -> str:
        """The file of a snapshot."""
        return f"{self.snapshot_dir}/snapshot-{snapshot_id}"

    @property
    def latest_hint(self) -> str:
        """The file that may know the last snapshot's id."""
        return f"{self.snapshot_dir}/LATEST"

    @property
    def earliest_hint(self) -> str:
        """The file that may know the first snapshot's id."""
        return f"{self.snapshot_dir}/EARLIEST"

    @property
    def tag_dir(self) -> str:
        """The folder of tag files."""
        return f"{self.branch_root}/tag"

    def tag(self, name: str) -> str:
        """The file of a tag; raises :class:`InvalidRequest` for a name that no file can have."""
        _check_given(name, "tag")
        return f"{self.tag_dir}/tag-{name}"

    @property
    def manifest_dir(self) -> str:
        """The folder of manifests, manifest lists and index manifests, shared by all branches."""
        return f"{self.root}/manifest"

    def manifest(self, name: str) -> str:
        """The file of a manifest, manifest list or index manifest."""
        return f"{self.manifest_dir}/{name}"

    def index(self, name: str) -> str:
        """A table index file (HASH, deletion vectors)."""
        return f"{self.root}/index/{name}"

    def statistics(self, name: str) -> str:
        """A statistics file."""
        return f"{self.root}/statistics/{name}"

    @property
    def scan_log_dir(self) -> str:
        """The folder of recorded scans, which only bitlake knows."""
        return f"{self.root}/scans"

    def bucket_dir(self, partition_path: str, bucket: int, data_directory: str | None = None) -> str:
        """The folder of a bucket's data files; ``partition_path`` as :mod:`bitlake.metadata.partition` forms it.

        ``data_directory``: the option ``data-file.path-directory``.
        """
        parts = [self.root, data_directory, partition_path, bucket_name(bucket)]
        return "/".join(p.strip("/") if i else p for i, p in enumerate(parts) if p)

    def data_file(self, partition_path: str, bucket: int, name: str) -> str:
        """A data file, or a file kept beside it such as its index."""
        return f"{self.bucket_dir(partition_path, bucket)}/{name}"


def _check_given(name: str, what: str) -> None:
    if not is_file_name(name):
        raise InvalidRequest(f"invalid {what} name {name!r}: {_RULE}")


def bucket_name(bucket: int) -> str:
    """The folder name of a bucket."""
    return "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"


def parse_id(name: str, prefix: str) -> int | None:
    """The number of a file name such as ``snapshot-12`` (prefix ``snapshot-``); None for any other name."""
    tail = name[len(prefix) :] if name.startswith(prefix) else ""
    return int(tail) if _DIGITS.match(tail) and tail.isascii() else None


HINT_BYTES = 1024
"""The most that a hint may take; Paimon writes the digits of a number."""


def parse_hint(data: bytes) -> int | None:
    """The number in a LATEST or EARLIEST file; None for anything else."""
    text = data[:32].strip()
    return int(text) if text.isdigit() and len(text) < 20 else None


def data_file_name(prefix: str, writer_uuid: str, number: int, file_format: str, compression: str | None = None) -> str:
    """The name of a writer's ``number``-th data file; with ``compression`` it goes before the format.

    Raises :class:`InvalidRequest` if the parts, which come from options, make a path instead of a name.
    """
    codec = f".{compression}" if compression else ""
    name = f"{prefix}{writer_uuid}-{number}{codec}.{file_format}"
    if not is_file_name(name):
        raise InvalidRequest(
            f"the table's options make {name!r} the name of a data file (prefix {prefix!r}, compression "
            f"{compression!r}, format {file_format!r}): {_RULE}; change the option"
        )
    return name


def index_file_name(data_file: str) -> str:
    """The name (or path) of the file index made with a data file; a rewritten one has a name of its own."""
    return f"{data_file}.index"


def scan_log_name(time_ms: int) -> str:
    """The name of a new file of recorded scans; names sort by their times."""
    return f"scan-log-{time_ms:013}-{_clock.new_uuid()[:8]}.jsonl"


def is_scan_log(name: str) -> bool:
    """Whether a file holds recorded scans."""
    return _SCAN_LOG.match(name) is not None


def table_index_name(writer_uuid: str, number: int) -> str:
    """The name of a writer's ``number``-th table index file (deletion vectors, HASH)."""
    return f"index-{writer_uuid}-{number}"


class ManifestNames:
    """Hands out the manifest file names of one committer: one UUID, a counter for each kind.  Mutable, one thread."""

    def __init__(self, committer_uuid: str | None = None) -> None:
        self.uuid = committer_uuid or _clock.new_uuid()
        self._next = {"manifest": 0, "manifest-list": 0, "index-manifest": 0}

    def _take(self, kind: str) -> str:
        number = self._next[kind]
        self._next[kind] = number + 1
        return f"{kind}-{self.uuid}-{number}"

    def manifest(self) -> str:
        """The next manifest name."""
        return self._take("manifest")

    def manifest_list(self) -> str:
        """The next manifest list name."""
        return self._take("manifest-list")

    def index_manifest(self) -> str:
        """The next index manifest name."""
        return self._take("index-manifest")
