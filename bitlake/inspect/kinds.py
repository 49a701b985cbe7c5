"""What kind of file something is: by its name, and by its first bytes."""

from __future__ import annotations

import enum
import re

from bitlake.inspect.source import AVRO_MAGIC, ORC_MAGIC

START = 64
"""First bytes of a file that tell its kind, if they do."""


class Kind(enum.Enum):
    """The kinds of files a table has."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    CHANGELOG = "changelog"
    SCHEMA = "schema"
    HINT = "hint"
    STATISTICS = "statistics"
    CONSUMER = "consumer"
    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    INDEX_MANIFEST = "index manifest"
    FILE_INDEX = "file index"
    VECTORS = "deletion vectors"
    HASHES = "hash index"
    PARQUET = "Parquet data file"
    ORC = "ORC data file"
    AVRO = "Avro file"
    JSON = "JSON"
    UNKNOWN = "unknown file"


_NAMES = (
    (re.compile(r"^snapshot-\d+$"), Kind.SNAPSHOT),
    (re.compile(r"^tag-."), Kind.TAG),
    (re.compile(r"^changelog-\d+$"), Kind.CHANGELOG),
    (re.compile(r"^schema-\d+$"), Kind.SCHEMA),
    (re.compile(r"^(LATEST|EARLIEST)$"), Kind.HINT),
    (re.compile(r"^stat-"), Kind.STATISTICS),
    (re.compile(r"^consumer-"), Kind.CONSUMER),
    (re.compile(r"^manifest-list-"), Kind.MANIFEST_LIST),
    (re.compile(r"^index-manifest-"), Kind.INDEX_MANIFEST),
    (re.compile(r"^manifest-"), Kind.MANIFEST),
    (re.compile(r"\.index$"), Kind.FILE_INDEX),
    (re.compile(r"\.parquet$"), Kind.PARQUET),
    (re.compile(r"\.orc$"), Kind.ORC),
    (re.compile(r"\.avro$"), Kind.AVRO),
    (re.compile(r"^index-"), Kind.HASHES),
)
_AVRO_KINDS = frozenset({Kind.MANIFEST, Kind.MANIFEST_LIST, Kind.INDEX_MANIFEST, Kind.AVRO})
_BY_FIELD = (
    ("_NUM_ADDED_FILES", Kind.MANIFEST_LIST),
    ("_INDEX_TYPE", Kind.INDEX_MANIFEST),
    ("_TOTAL_BUCKETS", Kind.MANIFEST),
)
_JSON_KINDS = frozenset(
    {Kind.SNAPSHOT, Kind.TAG, Kind.CHANGELOG, Kind.SCHEMA, Kind.STATISTICS, Kind.CONSUMER, Kind.JSON}
)


def by_name(path: str) -> Kind:
    """What a file's name says it is."""
    name = path.rsplit("/", 1)[-1]
    return next((kind for pattern, kind in _NAMES if pattern.search(name)), Kind.UNKNOWN)


def by_magic(start: bytes, size: int) -> Kind:
    """What the first bytes of a file of ``size`` bytes say it is; Avro files stay undivided."""
    if start.lstrip()[:1] == b"{":
        return Kind.JSON
    if start.startswith(b"PAR1"):
        return Kind.PARQUET
    if start.startswith(ORC_MAGIC):
        return Kind.ORC
    if start.startswith(AVRO_MAGIC):
        return Kind.AVRO
    if start[:size].isdigit():
        return Kind.UNKNOWN  # a hint, which its name tells
    # Those who know the rest load numpy and Arrow, which files of text and their likes do without.
    from bitlake.inspect.file_index import MAGIC_BYTES
    from bitlake.inspect.table_index import is_vectors

    if start.startswith(MAGIC_BYTES):
        return Kind.FILE_INDEX
    return Kind.VECTORS if is_vectors(start, size) else Kind.UNKNOWN


def kind_of(path: str, start: bytes, size: int, avro_fields: tuple[str, ...]) -> tuple[Kind, str | None]:
    """A file's kind, and a remark where name and content differ; ``avro_fields`` are those of an Avro file's records.

    The content wins where it has a mark of its own; otherwise the name does.
    """
    named, found = by_name(path), by_magic(start, size)
    if found is Kind.AVRO:
        inner = next((kind for field, kind in _BY_FIELD if field in avro_fields), Kind.AVRO)
        if inner is Kind.AVRO and named in _AVRO_KINDS:
            inner = named  # its header may be what is damaged
        found = inner
    if found is Kind.JSON and named in _JSON_KINDS:
        found = named
    if found in (Kind.UNKNOWN, named) or (found is Kind.JSON and named is not Kind.UNKNOWN):
        return named, None
    if named is Kind.UNKNOWN or (named is Kind.HASHES and found is Kind.VECTORS):
        return found, None
    return found, f"the name is that of a {named.value}, the content that of a {found.value}"
