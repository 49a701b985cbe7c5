"""Paths of a table: the one place that forms and parses the names of its files and folders.

Folders of partitions are derived from the partition row and never parsed back: the row in the manifest is the truth.

External paths are outside of the table's folder, below allowed roots.  ``file:/p``, ``file:///p``,
``file://localhost/p`` and ``/p`` are one place; ``s3``, ``s3a`` and ``s3n`` are one scheme.  Paths are compared by
their segments, so that ``/data/ext`` does not hold ``/data/extra``; one with ``..`` has no place.

Source: table-format spec, section 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from bitlake import _clock, arguments
from bitlake.errors import CorruptError, InvalidRequest
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.casts import java_float
from bitlake.types.datatypes import FLOATS, TIMESTAMPS
from bitlake.types.utf8 import decoded_text, is_blank

POSTPONE_BUCKET = -2
_DIGITS = re.compile(r"^\d{1,19}$")
_SCAN_LOG = re.compile(r"^scan-log-\d{13}-[0-9a-f]{8}\.jsonl$")
_SEPARATORS = frozenset("/\\\0")
_RULE = "a file name must not be empty, '.' or '..', nor contain '/', '\\' or NUL"


def split_paths(text: str | None) -> list[str]:
    """The paths of a text with commas between."""
    return [path.strip() for path in (text or "").split(",") if path.strip()]


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
    that may hold files of it, as :func:`check_roots` returns them; nothing looks at them
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

    def tag_success(self, name: str) -> str:
        """The success file of a tag (``tag.create-success-file``)."""
        return f"{self.tag_dir}/tag-success-file/{name}_SUCCESS"

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
        """The folder of a bucket's data files; ``partition_path`` as :func:`partition_path` forms it.

        ``data_directory``: the option ``data-file.path-directory``.
        """
        parts = [self.root, data_directory, partition_path, bucket_name(bucket)]
        return "/".join(p.strip("/") if i else p for i, p in enumerate(parts) if p)

    def data_file(self, partition_path: str, bucket: int, name: str) -> str:
        """A data file, or a file kept beside it such as its index."""
        return f"{self.bucket_dir(partition_path, bucket)}/{name}"


def _check_given(name: str, what: str) -> None:
    if not is_file_name(arguments.text(f"a {what} name", name)):
        raise InvalidRequest(f"invalid {what} name {name!r}: {_RULE}")


def bucket_name(bucket: int) -> str:
    """The folder name of a bucket."""
    return "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"


def parse_id(name: str, prefix: str) -> int | None:
    """The number of a file name such as ``snapshot-12`` (prefix ``snapshot-``); None for any other name."""
    tail = name[len(prefix) :] if name.startswith(prefix) else ""
    return int(tail) if _DIGITS.match(tail) and tail.isascii() else None


DROPPED = ".dropped-"
"""The prefix of a folder that was moved away to be deleted."""
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

    def __init__(self) -> None:
        self.uuid = _clock.new_uuid()
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


# --- folders of partitions --------------------------------------------------------------------------------------------

DEFAULT_NAME = "__DEFAULT_PARTITION__"
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")


def escape(text: str) -> str:
    """Replace the characters a folder name may not hold by ``%XX``."""
    return _ESCAPED.sub(lambda m: f"%{ord(m.group()):02X}", text)


def partition_path(
    fields: Sequence[DataField], values: Sequence[Any], *, default_name: str = DEFAULT_NAME, legacy: bool = True
) -> str:
    """``k1=v1/k2=v2`` of physical ``values``, empty for an unpartitioned table.

    NULL and blank values become ``default_name``; ``legacy`` is the option ``partition.legacy-name``.
    """
    spec = partition_spec(fields, values, default_name=default_name, legacy=legacy)
    return "/".join(f"{escape(name)}={escape(text)}" for name, text in spec.items())


def partition_spec(
    fields: Sequence[DataField], values: Sequence[Any], *, default_name: str = DEFAULT_NAME, legacy: bool = True
) -> dict[str, str]:
    """The texts of physical ``values`` by column, as in a folder's name but without any escaping."""
    out = {}
    for field, value in zip(fields, values, strict=True):
        assert isinstance(field.type, AtomicType)
        text = "" if value is None else render_value(field.type, value, legacy=legacy)
        out[field.name] = default_name if is_blank(text) else text
    return out


def render_value(made: AtomicType, value: Any, *, legacy: bool = True) -> str:
    """A physical value as the text Paimon puts into folder names."""
    root = made.root
    if root is Root.BOOLEAN:
        return "true" if value else "false"
    if root is Root.DECIMAL:
        return _decimal(value, made.scale or 0)
    if root in FLOATS:
        return java_float(value, single=root is Root.FLOAT)
    if root is Root.DATE:
        return str(value) if legacy else _date(value)
    if root is Root.TIME:
        return str(value) if legacy else _time(value, made.precision or 0)
    if root in TIMESTAMPS:
        return _timestamp(made, value, legacy)
    if isinstance(value, bytes):
        return decoded_text(value)
    return str(value)


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _date(days: int) -> str:
    """The proleptic Gregorian date of an epoch day, for any year (Hinnant's civil-from-days)."""
    era, day = divmod(days + 719468, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    shifted = (5 * day + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    full = year + era * 400 + (month <= 2)
    sign = "-" if full < 0 else "+" if full > 9999 else ""
    return f"{sign}{abs(full):04d}-{month:02d}-{day - (153 * shifted + 2) // 5 + 1:02d}"


def _time(millis: int, digits: int) -> str:
    """A time of day without zeros at the end of its fraction, which keeps one digit; as Paimon names folders."""
    whole, point, fraction = _clock_text(millis * 1_000_000, digits).partition(".")
    return f"{whole}{point}{fraction.rstrip('0') or '0'}" if point else whole


def _clock_text(nanos: int, digits: int) -> str:
    seconds, rest = divmod(nanos, 1_000_000_000)
    fraction = f".{rest:09d}"[: digits + 1] if digits else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _timestamp(made: AtomicType, value: int, legacy: bool) -> str:
    precision = 6 if made.precision is None else made.precision
    unit = 1_000_000 if precision <= 3 else 1_000 if precision <= 6 else 1
    days, nanos = divmod(value * unit, 86_400_000_000_000)
    if not legacy:
        return f"{_date(days)} {_clock_text(nanos, precision)}"
    rest = nanos % 1_000_000_000
    digits = 0 if rest == 0 else 3 if rest % 1_000_000 == 0 else 6 if rest % 1_000 == 0 else 9
    clock = _clock_text(nanos, digits)
    # Java leaves out the seconds of a full minute.
    return f"{_date(days)}T{clock[:5] if nanos % 60_000_000_000 == 0 else clock}"


# --- external paths ---------------------------------------------------------------------------------------------------

_URI = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?$", re.DOTALL)
_SAME = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or file of a store: scheme, host or bucket, and the names on the way to it."""

    scheme: str
    authority: str
    segments: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Location:
        """The place of an absolute path or URI; raises ``ValueError`` for a relative one, and one with ``..``."""
        uri = _URI.match(text)
        scheme, authority, path = ("file", "", text) if uri is None else uri.groups("")
        scheme = scheme.lower()
        if "\0" in text or "\\" in text or (not path.startswith("/") and not (authority and not path)):
            raise ValueError(text)
        segments = tuple(s for s in path.split("/") if s not in ("", "."))
        if ".." in segments:
            raise ValueError(text)
        local = scheme == "file" and authority.lower() == "localhost"
        return cls(_SAME.get(scheme, scheme), "" if local else authority.lower(), segments)

    def holds(self, other: Location) -> bool:
        """Whether the other place is this one, or below it."""
        return (self.scheme, self.authority) == (other.scheme, other.authority) and (
            other.segments[: len(self.segments)] == self.segments
        )

    @property
    def store(self) -> tuple[str, str]:
        """The identity of a store: scheme, and host or bucket."""
        return self.scheme, self.authority


class DeferredRoots(Sequence[str]):
    """External roots that are asked for when they first matter, and then kept.

    To ask a Spark session takes 1 to 2 ms, as long as a small table takes to be planned, and few tables have files
    outside of their folders.  Pickled, they are a tuple: other processes cannot ask.
    """

    __slots__ = ("_ask", "_roots")

    def __init__(self, ask: Callable[[], Iterable[str]]) -> None:
        """``ask`` returns the roots as they were given.  Threads that come together all ask, and get the same."""
        self._ask = ask
        self._roots: tuple[str, ...] | None = None

    @property
    def _known(self) -> tuple[str, ...]:
        if self._roots is None:
            self._roots = _checked(self._ask())
        return self._roots

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._known[index]

    def __len__(self) -> int:
        return len(self._known)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeferredRoots | tuple) and self._known == tuple(other))

    def __hash__(self) -> int:
        return hash(self._known)

    def __reduce__(self) -> Any:
        return tuple, (self._known,)

    def __repr__(self) -> str:
        return "DeferredRoots()" if self._roots is None else f"DeferredRoots{self._roots}"


def check_roots(roots: Iterable[str]) -> Sequence[str]:
    """External roots as they were given, without trailing slashes; raises :class:`InvalidRequest` for no place.

    :class:`DeferredRoots` stay deferred, and raise the same when they are asked for.
    """
    return roots if isinstance(roots, DeferredRoots) else _checked(roots)


def _checked(roots: Iterable[str]) -> tuple[str, ...]:
    out = []
    for root in roots:
        try:
            Location.of(root)
        except ValueError as e:
            raise InvalidRequest(
                f"invalid external path {root!r}; expected an absolute path or URI without '..', such as "
                "file:/data/external or s3://bucket/folder"
            ) from e
        out.append(root.rstrip("/") or "/")
    return tuple(dict.fromkeys(out))


def allowing_root(path: str, roots: Iterable[str]) -> str | None:
    """The root that a path is below; None if it is below none, or has no place."""
    try:
        place = Location.of(path)
    except ValueError:
        return None
    for root in roots:
        try:
            if Location.of(root).holds(place):
                return root
        except ValueError:  # a relative folder, which no absolute path is known to be in
            continue
    return None


def refusal(table: str, path: str, what: str) -> InvalidRequest:
    """The error for an external path that is not allowed; ``what`` names it."""
    folder = path.rpartition("/")[0] or path
    return InvalidRequest(
        f"table {table}: {what} {path!r} is outside of the table's folder and below no allowed external path; if you "
        f"trust this table, allow a folder above it: bitlake.connect(…, external_paths=[{folder!r}]), --external-path "
        "on the command line, the option 'external-paths' of the data source, or spark.bitlake.external-paths"
    )
