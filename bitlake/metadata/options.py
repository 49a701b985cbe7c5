"""Table options: every option that bitlake reads or must recognise, declared once.

A declaration has a name, a type, a default and a description.  Values live as text in the schema file;
:class:`Options` reads them typed.  Unknown options are kept as they are, because another engine may know them.

Sources: table-format spec, sections 2 (what cannot change) and 10; index-format spec, sections 9.3, 10 and 11
(primary-key tables); Paimon's options ``tag.*``, ``partition.expiration-*``, ``partition.timestamp-*`` and
``end-input.*``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from bitlake.errors import InvalidRequest
from bitlake.metadata.option_types import (
    DIRECTORY,
    EXTERNAL,
    FILE_PREFIX,
    at_least,
    between,
    parse_bool,
    parse_column_list,
    parse_directory,
    parse_duration_ms,
    parse_external_paths,
    parse_file_prefix,
    parse_int,
    parse_memory,
    parse_stats_mode,
    parse_weights,
    words,
)
from bitlake.metadata.option_types import Option as Option
from bitlake.metadata.option_types import StatsMode as StatsMode

T = TypeVar("T")
OPTIONS: dict[str, Option[Any]] = {}
"""Every declared option by name."""


def _add(option: Option[T]) -> Option[T]:
    OPTIONS[option.name] = option
    return option


def _text(name: str, default: str | None, doc: str, immutable: bool = False) -> Option[str | None]:
    return _add(Option[str | None](name, str, default, "text", doc, default, immutable))


def _bool(name: str, default: bool, doc: str, immutable: bool = False) -> Option[bool]:
    return _add(Option(name, parse_bool, default, "true or false", doc, str(default).lower(), immutable))


def _int(name: str, default: int, low: int, doc: str) -> Option[int]:
    return _add(Option(name, at_least(low), default, f"a whole number ≥ {low}", doc, str(default)))


def _maybe_int(name: str, low: int, doc: str, immutable: bool = False) -> Option[int | None]:
    return _add(Option[int | None](name, at_least(low), None, f"a whole number ≥ {low}", doc, None, immutable))


def _memory(name: str, default: str, doc: str) -> Option[int]:
    allowed = "a size such as '128 mb' (b, kb, mb, gb, tb)"
    return _add(Option(name, parse_memory, parse_memory(default), allowed, doc, default))


def _maybe_memory(name: str, doc: str, least: int = 1) -> Option[int | None]:
    allowed = "a size such as '128 mb'" + (", above 0" if least else "")
    return _add(Option[int | None](name, at_least(least, parse_memory), None, allowed, doc))


_DURATION = "a duration such as '10 ms', '5 s', '2 min', '1 h' or '7 d'"


def _duration(name: str, default: str, doc: str) -> Option[int]:
    return _add(Option(name, parse_duration_ms, parse_duration_ms(default), _DURATION, doc, default))


def _word(name: str, default: str, allowed: tuple[str, ...], doc: str, immutable: bool = False) -> Option[str]:
    return _add(Option(name, words(*allowed), default, "one of " + ", ".join(allowed), doc, default, immutable))


def _per_level(parse: Callable[[str], T]) -> Callable[[str], Mapping[int, T]]:
    def parsed(text: str) -> Mapping[int, T]:
        out = {}
        for item in filter(None, map(str.strip, text.split(","))):
            level, colon, value = item.partition(":")
            if not colon:
                raise ValueError(text)
            out[at_least(0)(level)] = parse(value.strip())
        return out

    return parsed


def _levels(name: str, parse: Callable[[str], T], example: str, doc: str) -> Option[Mapping[int, T]]:
    return _add(Option[Mapping[int, T]](name, _per_level(parse), {}, f"level:value pairs such as '{example}'", doc))


def _lower(text: str) -> str:
    return text.strip().lower()


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def _bucket(text: str) -> int:
    value = parse_int(text)
    if value < -2 or value == 0 or value > 2**31 - 1:
        raise ValueError(text)
    return value


_STATS = "none, counts, full or truncate(n) with n ≥ 1"


# --- tables, data files, snapshots and commits ------------------------------------------------------------------------

TYPE = _text("type", "table", "Kind of table; only 'table' can be read here.", immutable=True)
PATH = _text("path", None, "Where the table is; never stored by bitlake.")
BUCKET = _add(
    Option("bucket", _bucket, -1, "a number > 0 of buckets, -1 (unaware or dynamic) or -2 (postpone)",
           "Number of buckets a partition's rows are spread over.", "-1")
)  # fmt: skip
BUCKET_KEY = _add(
    Option[tuple[str, ...]]("bucket-key", parse_column_list, (), "column names between commas",
           "Columns whose hash picks the bucket; blanks count and so does the order.", None, True)
)  # fmt: skip
BUCKET_FUNCTION = _word(
    "bucket-function.type", "default", ("default", "mod", "hive"), "How the bucket key becomes a bucket.", True
)
PRIMARY_KEY = _text("primary-key", None, "Key columns; moved into the schema's list at creation.", immutable=True)
PARTITION = _text("partition", None, "Partition columns; moved into the schema's list at creation.", immutable=True)
PRIMARY_KEY_NULLABLE = _bool("primary-key.nullable", False, "Whether key columns may hold NULL.", immutable=True)
PARTITION_DEFAULT_NAME = _add(
    Option("partition.default-name", str, "__DEFAULT_PARTITION__", "text",
           "Folder name of NULL and blank partition values.", "__DEFAULT_PARTITION__")
)  # fmt: skip
PARTITION_LEGACY_NAME = _bool(
    "partition.legacy-name", True, "Render DATE partitions as epoch days and timestamps in ISO form."
)
PARTITION_END_INPUT_DONE = _bool(
    "partition.end-input-to-done", False, "Batch writes mark the partitions that they wrote to as complete."
)
FILE_FORMAT = _word("file.format", "parquet", ("parquet", "orc", "avro", "csv", "json"), "Format of new data files.")
FILE_COMPRESSION = _add(
    Option("file.compression", lambda text: str(text).strip().lower(), "zstd", "a codec name",
           "Compression of data files: zstd, snappy, gzip, lz4 or none.", "zstd")
)  # fmt: skip
ZSTD_LEVEL = _add(
    Option("file.compression.zstd-level", between(1, 22), 1, "a whole number from 1 to 22",
           "zstd level of data files and manifests.", "1")
)  # fmt: skip
FILE_BLOCK_SIZE = _maybe_memory("file.block-size", "Row group (Parquet) or stripe size; unset: 128 MB.")
# Plain numbers, no units: Paimon (Java) hands both to Parquet's own configuration.
PARQUET_PAGE_SIZE = _maybe_int(
    "parquet.page.size", 1024, "Uncompressed bytes of a Parquet page at which the next begins; unset: 262144."
)
PARQUET_PAGE_ROWS = _maybe_int(
    "parquet.page.row.count.limit",
    64,
    "Rows of a Parquet page at which the next begins; unset: 4096 with file indexes or a primary key, else 20000.",
)
FILE_SUFFIX_COMPRESSION = _bool("file.suffix.include.compression", False, "Put the codec into data file names.")
TARGET_FILE_SIZE = _maybe_memory("target-file-size", "Roll data files at this size; unset: 256 MB for append tables.")
TARGET_FILE_ROWS = _maybe_int("target-file-row-num", 1, "Roll data files at this many rows; unset: never.")
DATA_FILE_PREFIX = _add(
    Option("data-file.prefix", parse_file_prefix, "data-", FILE_PREFIX, "Prefix of data file names.", "data-")
)
DATA_FILE_DIRECTORY = _add(
    Option[str | None](
        "data-file.path-directory",
        parse_directory,
        None,
        DIRECTORY,
        "Folder of data files under the table.",
        None,
        True,
    )
)
EXTERNAL_PATHS = _add(
    Option[tuple[str, ...] | None](
        "data-file.external-paths",
        parse_external_paths,
        None,
        EXTERNAL,
        "Where new data files go, not to the table.",
    )
)
EXTERNAL_PATHS_STRATEGY = _word(
    "data-file.external-paths.strategy",
    "none",
    ("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
    "How a new data file chooses an external path; none: it goes to the table's folder.",
)
EXTERNAL_PATHS_FS = _text("data-file.external-paths.specific-fs", None, "The scheme that specific-fs chooses.")
EXTERNAL_PATHS_WEIGHTS = _add(
    Option[tuple[int, ...] | None](
        "data-file.external-paths.weights",
        parse_weights,
        None,
        "whole numbers ≥ 1 with commas between",
        "Weights of the external paths, in their order, for weight-robin.",
    )
)
STATS_MODE = _add(
    Option("metadata.stats-mode", parse_stats_mode, StatsMode("truncate", 16), _STATS,
           "What column statistics manifests keep.", "truncate(16)")
)  # fmt: skip
STATS_KEEP_FIRST = _int(
    "metadata.stats-keep-first-n-columns", -1, -1, "Keep statistics of the first n columns only; -1: of all."
)
STATS_DENSE = _bool("metadata.stats-dense-store", True, "Leave columns without statistics out, listing the others.")
MANIFEST_TARGET_SIZE = _memory("manifest.target-file-size", "8 mb", "Roll and merge manifests at this size.")
MANIFEST_MERGE_MIN = _int("manifest.merge-min-count", 30, 1, "Merge the newest manifests once there are this many.")
MANIFEST_FULL_SIZE = _memory(
    "manifest.full-compaction-threshold-size", "16 mb", "Rewrite small and deleting manifests from this total size on."
)
MANIFEST_FORMAT = _text("manifest.format", "avro", "Format of manifests; only 'avro' is written here.")
MANIFEST_COMPRESSION = _word(
    "manifest.compression", "zstd", ("zstd", "snappy", "deflate", "none"), "Codec of manifests."
)
SNAPSHOT_RETAINED_MIN = _int("snapshot.num-retained.min", 10, 1, "Snapshots that expiry always keeps.")
SNAPSHOT_RETAINED_MAX = _int("snapshot.num-retained.max", 2**31 - 1, 1, "Snapshots above this number expire.")
SNAPSHOT_TIME_RETAINED = _duration("snapshot.time-retained", "1 h", "Snapshots younger than this are kept.")
SNAPSHOT_EXPIRE_LIMIT = _int("snapshot.expire.limit", 50, 1, "Snapshots that one expiry removes at most.")
SNAPSHOT_IGNORE_EMPTY = _add(
    Option[bool | None]("snapshot.ignore-empty-commit", parse_bool, None, "true or false",
           "Make no snapshot for a commit of nothing; unset: batch writes make none.")
)  # fmt: skip
COMMIT_MAX_RETRIES = _int("commit.max-retries", 10, 0, "Attempts after a failed one.")
COMMIT_MIN_WAIT = _duration("commit.min-retry-wait", "10 ms", "First wait between attempts; it doubles.")
COMMIT_MAX_WAIT = _duration("commit.max-retry-wait", "10 s", "Longest wait between attempts.")
COMMIT_TIMEOUT = _add(
    Option[int | None]("commit.timeout", parse_duration_ms, None, _DURATION,
           "Give up a commit after this long; unset: never.")
)  # fmt: skip
COMMIT_USER_PREFIX = _text("commit.user-prefix", None, "Put before the random commit user.")
FORCE_SNAPSHOT = _bool("commit.force-create-snapshot", False, "Make a snapshot even for an empty commit.")
INDEX_THRESHOLD = _memory(
    "file-index.in-manifest-threshold", "500 b", "Embed a file's index in the manifest up to this size."
)
INDEX_READ = _bool("file-index.read.enabled", True, "Use file indexes when reading.")
INDEX_ON_UNREADABLE = _word(
    "file-index.on-unreadable", "scan", ("scan", "fail"),
    "What to do with an index that cannot be read: scan the file with a warning, or fail (bitlake's own option).",
)  # fmt: skip
SPARK_READ_PATH = _word(
    "read.spark-path", "auto", ("auto", "driver", "spark", "workers"),
    "How a query on Spark reads data files: auto chooses by cost; driver, spark (Spark's own Parquet reader, for the "
    "files that it can read) or workers (Python workers) forces a way, to diagnose a query (bitlake's own option).",
)  # fmt: skip
DYNAMIC_OVERWRITE = _bool(
    "dynamic-partition-overwrite", True, "INSERT OVERWRITE replaces only the partitions it writes."
)
WRITE_ONLY = _bool("write-only", False, "Writers neither compact nor expire.")
SCAN_IGNORE_CORRUPT = _bool("scan.ignore-corrupt-files", False, "Leave data files out of queries that are damaged.")
SCAN_IGNORE_LOST = _bool("scan.ignore-lost-files", False, "Leave data files out of queries that are missing.")
DV_ENABLED = _bool("deletion-vectors.enabled", False, "Mark deleted rows in deletion vectors.")
DV_MODIFIABLE = _bool("deletion-vectors.modifiable", False, "Allow deletion-vectors.enabled to change.")
DV_BITMAP64 = _bool("deletion-vectors.bitmap64", False, "Write 64-bit deletion vectors.")
DV_MERGE_ON_READ = _bool("deletion-vectors.merge-on-read", False, "Merge level 0 too when reading.")
DV_TARGET_SIZE = _memory("deletion-vector.index-file.target-size", "2 mb", "Roll deletion vector files at this size.")
MERGE_ENGINE = _word(
    "merge-engine", "deduplicate", ("deduplicate", "partial-update", "aggregation", "first-row"),
    "How rows of one primary key become one.", True,
)  # fmt: skip
CHANGELOG_PRODUCER = _word(
    "changelog-producer", "none", ("none", "input", "full-compaction", "lookup"), "How changelogs are made."
)
SEQUENCE_FIELD = _text("sequence.field", None, "Columns that order rows of one key.")
DYNAMIC_BUCKET_TARGET = _int("dynamic-bucket.target-row-num", 2_000_000, 1, "Rows a dynamic bucket takes.")
DYNAMIC_BUCKET_INITIAL = _maybe_int("dynamic-bucket.initial-buckets", 1, "Buckets to begin with.", immutable=True)
DYNAMIC_BUCKET_MAX = _int("dynamic-bucket.max-buckets", -1, -1, "Most dynamic buckets; -1: no limit.")
INDEX_IN_DATA_DIR = _bool("index-file-in-data-file-dir", False, "Put table index files beside data.", immutable=True)
ROW_TRACKING = _bool("row-tracking.enabled", False, "Give every row an id.", immutable=True)
DATA_EVOLUTION = _bool("data-evolution.enabled", False, "Store columns of a row in several files.", immutable=True)
NULL_TO_NOT_NULL_OFF = _bool("alter-column-null-to-not-null.disabled", True, "Refuse to make a column NOT NULL.")
EXPLICIT_CAST_OFF = _bool("disable-explicit-type-casting", False, "Allow only implicit casts when a type changes.")


# --- primary-key tables: files ----------------------------------------------------------------------------------------

FORMAT_PER_LEVEL = _levels(
    "file.format.per.level", words("parquet", "orc", "avro"), "0:avro,3:parquet", "Format of new files by level."
)
COMPRESSION_PER_LEVEL = _levels(
    "file.compression.per.level", _lower, "0:lz4,1:zstd", "Compression of new files by level."
)
STATS_PER_LEVEL = _levels(
    "metadata.stats-mode.per.level", parse_stats_mode, "0:none", "What statistics manifests keep, by level."
)
THIN_MODE = _bool("data-file.thin-mode", False, "Leave the key's copy out of data files.")
CHANGELOG_PREFIX = _add(
    Option(
        "changelog-file.prefix",
        parse_file_prefix,
        "changelog-",
        FILE_PREFIX,
        "Begins changelog file names.",
        "changelog-",
    )
)
CHANGELOG_FORMAT = _add(
    Option[str | None]("changelog-file.format", words("parquet", "orc", "avro"), None, "parquet, orc or avro",
           "Format of changelog files; unset: as data files.")
)  # fmt: skip
CHANGELOG_COMPRESSION = _add(
    Option[str | None]("changelog-file.compression", _lower, None, "a codec name",
           "Compression of changelog files; unset: as data files.")
)  # fmt: skip
CHANGELOG_STATS = _add(
    Option[StatsMode | None]("changelog-file.stats-mode", parse_stats_mode, None,
           _STATS, "Statistics of changelog files; unset: as data files.")
)  # fmt: skip


# --- primary-key tables: writing --------------------------------------------------------------------------------------

WRITE_BUFFER_SIZE = _add(
    Option("write-buffer-size", at_least(1, parse_memory), 256 << 20, "a size such as '256 mb', above 0",
           "Rows of a bucket that are gathered and sorted in memory before they become a file.", "256 mb")
)  # fmt: skip
IGNORE_DELETE = _bool("ignore-delete", False, "Drop rows of kind -U and -D.")
IGNORE_UPDATE_BEFORE = _bool("ignore-update-before", False, "Drop rows of kind -U.")
ROWKIND_FIELD = _add(
    Option[str | None]("rowkind.field", str, None, "a column name", "Column that holds the row kind.", None, True)
)
OVERWRITE_UPGRADE = _bool(
    "overwrite-upgrade", True, "An overwrite puts files that do not overlap straight into the highest level."
)

POSTPONE_BUCKETS = _maybe_int(
    "postpone.default-bucket-num",
    1,
    "Buckets of a partition whose rows get their first ones; unset: by their size.",
)
POSTPONE_FIXED = _bool(
    "postpone.batch-write-fixed-bucket", True, "Batch writes put rows into buckets at once, instead of postponing them."
)
POSTPONE_FIXED_MOST = _int(
    "postpone.batch-write-fixed-bucket.max-parallelism",
    2048,
    1,
    "Buckets that such a write gives a new partition, at most.",
)
POSTPONE_ROWS = _maybe_int(
    "postpone.target-row-num-per-bucket", 1, "Postponed rows that a bucket is to get; unset: by size."
)
POSTPONE_SIZE = _add(
    Option("postpone.target-size-per-bucket", at_least(1, parse_memory), 1 << 30, "a size such as '1 gb', above 0",
           "Bytes of postponed rows that a bucket is to get.", "1 gb")
)  # fmt: skip


# --- compaction -------------------------------------------------------------------------------------------------------

COMPACTION_TRIGGER = _int("num-sorted-run.compaction-trigger", 5, 1, "Sorted runs from which on a bucket is compacted.")
STOP_TRIGGER = _maybe_int("num-sorted-run.stop-trigger", 1, "Sorted runs above which writes wait; unset: trigger + 3.")
NUM_LEVELS = _maybe_int("num-levels", 2, "Levels of a bucket; unset: the compaction trigger + 1.")
SIZE_AMPLIFICATION = _int(
    "compaction.max-size-amplification-percent", 200, 0, "Size of all runs but the oldest, in percent of it, at most."
)
SIZE_RATIO = _int("compaction.size-ratio", 1, 0, "Percent by which a run may be larger than those compacted with it.")
OFFPEAK_START = _add(
    Option("compaction.offpeak.start.hour", between(-1, 23), -1, "an hour, 0 to 23, or -1", "Off-peak begins.", "-1")
)
OFFPEAK_END = _add(
    Option("compaction.offpeak.end.hour", between(-1, 23), -1, "an hour, 0 to 23, or -1", "Off-peak ends.", "-1")
)
OFFPEAK_RATIO = _int("compaction.offpeak-ratio", 0, 0, "Added to the size ratio in off-peak hours.")
OPTIMIZATION_INTERVAL = _add(
    Option[int | None]("compaction.optimization-interval", parse_duration_ms, None, "a duration such as '1 h'",
           "Compact a bucket fully this often.")
)  # fmt: skip
TOTAL_SIZE_THRESHOLD = _maybe_memory(
    "compaction.total-size-threshold", "Compact a bucket fully below this size.", least=0
)
INCREMENTAL_SIZE_THRESHOLD = _maybe_memory(
    "compaction.incremental-size-threshold",
    "Compact a bucket fully when more than this is above its highest level.",
    least=0,
)
FORCE_UP_LEVEL_0 = _bool("compaction.force-up-level-0", False, "Every compaction takes all of level 0.")
FORCE_REWRITE_ALL = _bool("compaction.force-rewrite-all-files", False, "A full compaction rewrites every file.")
SMALL_FILE_RATIO = _add(
    Option("compaction.small-file-ratio", _ratio, 0.7, "a number from 0 to 1",
           "Files above this part of the target size are left as they are.", "0.7")
)  # fmt: skip
MIN_FILES = _int("compaction.min.file-num", 5, 1, "Append tables: small files are merged from this many on.")
DELETE_RATIO = _add(
    Option("compaction.delete-ratio-threshold", _ratio, 0.2, "a number from 0 to 1",
           "A file is rewritten when more of its rows than this part are deleted; with a primary key: only if set.",
           "0.2")
)  # fmt: skip
OPEN_FILE_COST = _add(
    Option("source.split.open-file-cost", parse_memory, 4 << 20, "a size such as '4 mb'",
           "What a file counts beyond its size when files are put together.", "4 mb")
)  # fmt: skip
LOOKUP_COMPACT = _word("lookup-compact", "radical", ("radical", "gentle"), "How eagerly level 0 is compacted.")
LOOKUP_INTERVAL = _maybe_int(
    "lookup-compact.max-interval", 1, "Gentle: level 0 is compacted at this many writes; unset: twice the trigger."
)
FORCE_LOOKUP = _add(
    Option("force-lookup", parse_bool, False, "true or false", "Compact level 0 by looking keys up.", "false", True)
)


# --- primary-key tables: merging rows of one key ----------------------------------------------------------------------

SEQUENCE_ORDER = _add(
    Option("sequence.field.sort-order", words("ascending", "descending"), "ascending", "ascending or descending",
           "Whether the largest or the smallest value of the sequence field is the newest.", "ascending")
)  # fmt: skip
SNAPSHOT_ORDERING = _bool(
    "sequence.snapshot-ordering", False, "Order rows of one key by their snapshot.", immutable=True
)
AGGREGATION_REMOVE = _bool(
    "aggregation.remove-record-on-delete", False, "Aggregation: a row of kind -D removes the key's row.", immutable=True
)
PARTIAL_REMOVE = _bool(
    "partial-update.remove-record-on-delete",
    False,
    "Partial update: a row of kind -D removes the key's row.",
    immutable=True,
)
PARTIAL_REMOVE_GROUP = _add(
    Option[str | None]("partial-update.remove-record-on-sequence-group", str, None, "columns between commas",
           "Partial update: a -D that is newer for these sequence groups removes the row.", None, True)
)  # fmt: skip


# --- primary-key tables: changelogs and record-level expiry -----------------------------------------------------------

ROW_DEDUPLICATE = _bool(
    "changelog-producer.row-deduplicate", False, "Leave changes that change nothing out of changelogs."
)
STREAMING_OVERWRITE = _bool("streaming-read-overwrite", False, "Streaming readers see what an overwrite changes.")
FULL_COMPACTION_COMMITS = _add(
    Option[int | None]("full-compaction.delta-commits", at_least(1), None, "a whole number ≥ 1",
           "Compact fully after this many commits.")
)  # fmt: skip
EXPIRE_TIME = _add(
    Option[int | None]("record-level.expire-time", parse_duration_ms, None, "a duration such as '7 d'",
           "Compactions drop rows that are older than this by the time field.")
)  # fmt: skip
EXPIRE_FIELD = _add(
    Option[str | None]("record-level.time-field", str, None, "a column name",
           "The column that record-level expiry goes by: INT (seconds), BIGINT (seconds or milliseconds) or TIMESTAMP.")
)  # fmt: skip
CHANGELOG_RETAINED_MIN = _add(
    Option[int | None]("changelog.num-retained.min", at_least(1), None, "a whole number ≥ 1",
           "Changelogs that expiry always keeps; unset: as snapshots.")
)  # fmt: skip
CHANGELOG_RETAINED_MAX = _add(
    Option[int | None]("changelog.num-retained.max", at_least(1), None, "a whole number ≥ 1",
           "Changelogs above this number expire; unset: as snapshots.")
)  # fmt: skip
CHANGELOG_TIME_RETAINED = _add(
    Option[int | None]("changelog.time-retained", parse_duration_ms, None, "a duration such as '7 d'",
           "Changelogs younger than this are kept; unset: as snapshots.")
)  # fmt: skip


# --- tags -------------------------------------------------------------------------------------------------------------

# Commits create and expire tags; ``CALL sys.trigger_tag_automatic_creation`` creates them without a commit.

_ZONE = "the name of a time zone, such as 'Europe/Berlin' or 'UTC+02:00'"
TAG_AUTOMATIC_CREATION = _add(
    Option(
        "tag.automatic-creation",
        words("none", "process-time", "watermark", "batch"),
        "none",
        "one of none, process-time, watermark, batch",
        "Which time of a snapshot says of which period it is; batch: each write moves a tag of its day.",
        "none",
    )
)
TAG_CREATION_PERIOD = _add(
    Option(
        "tag.creation-period",
        words("daily", "hourly", "two-hours"),
        "daily",
        "one of daily, hourly, two-hours",
        "How long a period is.",
        "daily",
    )
)
TAG_CREATION_PERIOD_DURATION = _add(
    Option[int | None](
        "tag.creation-period-duration",
        parse_duration_ms,
        None,
        _DURATION,
        "How long a period is, instead of the words.",
    )
)
TAG_CREATION_DELAY = _add(
    Option("tag.creation-delay", parse_duration_ms, 0, _DURATION, "How late rows of a period may still come.", "0 ms")
)
TAG_PERIOD_FORMATTER = _add(
    Option(
        "tag.period-formatter",
        words("with-dashes", "without-dashes", "without-dashes-and-spaces"),
        "with-dashes",
        "one of with_dashes, without_dashes, without_dashes_and_spaces",
        "How a period is written as a tag's name.",
        "with_dashes",
    )
)
TAG_NUM_RETAINED = _add(
    Option[int | None](
        "tag.num-retained-max", at_least(1), None, "a whole number ≥ 1", "How many tags made by commits there may be."
    )
)
TAG_BATCH_NAME = _add(
    Option[str | None](
        "tag.batch.customized-name", str, None, "a tag's name", "The tag that writes move, instead of one a day."
    )
)
TAG_TIME_EXPIRE = _add(
    Option(
        "tag.time-expire-enabled",
        parse_bool,
        False,
        "true or false",
        "Whether commits delete the tags whose retention is over.",
        "false",
    )
)
TAG_DEFAULT_RETAINED = _add(
    Option[int | None](
        "tag.default-time-retained", parse_duration_ms, None, _DURATION, "How long new tags stay that do not say it."
    )
)
TAG_AUTOMATIC_COMPLETION = _add(
    Option(
        "tag.automatic-completion",
        parse_bool,
        False,
        "true or false",
        "Whether periods without a snapshot of their own get a tag too.",
        "false",
    )
)
WATERMARK_ZONE = _add(
    Option("sink.watermark-time-zone", str, "UTC", _ZONE, "The time zone in which watermarks are read as times.", "UTC")
)
PROCESS_TIME_ZONE = _add(
    Option[str | None](
        "sink.process-time-zone", str, None, _ZONE, "The time zone of commit times; unset: this machine's."
    )
)


# --- partition expiry -------------------------------------------------------------------------------------------------

# Partitions expire on request (``CALL sys.expire_partitions``), or after batch writes.

PARTITION_EXPIRATION_TIME = _add(
    Option[int | None](
        "partition.expiration-time", parse_duration_ms, None, _DURATION, "Partitions older than this may expire."
    )
)
PARTITION_EXPIRATION_CHECK_INTERVAL = _add(
    Option(
        "partition.expiration-check-interval",
        parse_duration_ms,
        3_600_000,
        _DURATION,
        "How often Paimon's streaming writers expire partitions; bitlake's do not go by it.",
        "1 h",
    )
)
PARTITION_EXPIRATION_MAX_NUM = _add(
    Option(
        "partition.expiration-max-num",
        at_least(1),
        100,
        "a whole number ≥ 1",
        "Partitions that one call expires.",
        "100",
    )
)
PARTITION_EXPIRATION_STRATEGY = _add(
    Option(
        "partition.expiration-strategy",
        words("values-time", "update-time"),
        "values-time",
        "one of values-time, update-time",
        "Whether a partition's age is that of a time in its values, or of its last file.",
        "values-time",
    )
)
PARTITION_TIMESTAMP_FORMATTER = _add(
    Option[str | None](
        "partition.timestamp-formatter",
        str,
        None,
        "a pattern of Java's DateTimeFormatter",
        "How times are written in partition values; unset: 'yyyy-MM-dd HH:mm:ss' or 'yyyy-MM-dd'.",
    )
)
PARTITION_TIMESTAMP_PATTERN = _add(
    Option[str | None](
        "partition.timestamp-pattern",
        str,
        None,
        "text with $column in it",
        "Where times are in partition values, as '$dt $hour:00:00'; unset: in the first partition column.",
    )
)
END_INPUT_CHECK_PARTITION_EXPIRE = _add(
    Option(
        "end-input.check-partition-expire",
        parse_bool,
        False,
        "true or false",
        "Batch writes and compactions expire partitions when they are committed, by partition.expiration-time.",
        "false",
    )
)


# --- options of a table: reading and checks ---------------------------------------------------------------------------

IMMUTABLE = frozenset(
    {o.name for o in OPTIONS.values() if o.immutable}
    | {
        "blob-field",
        "blob-descriptor-field",
        "blob-view-field",
        "pk-clustering-override",
    }
)
"""Names that neither SET nor RESET may touch once the table has a snapshot."""

_COLUMN_STATS = re.compile(r"^fields\.(.+)\.stats-mode$", re.DOTALL)
_COLUMN_STATS_OPTION = Option[StatsMode | None]("fields.<column>.stats-mode", parse_stats_mode, None, _STATS, "")
FIELDS = "fields."
"""Options of one column or of several: ``fields.<column>.<option>``."""
SEQUENCE_GROUP = ".sequence-group"
_PREFIXES = ("file-index.", FIELDS, "field.")


class Options(Mapping[str, str]):
    """A table's options as text (a mapping), with typed reading."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self._values!r})"

    def of(self, option: Option[T]) -> T:
        """The option's value, or its default; raises :class:`InvalidRequest` for text it does not take."""
        text = self._values.get(option.name)
        return option.default if text is None else option.read(text)

    def get(self, key: Any, default: Any = None) -> Any:
        """With an :class:`Option`: its typed value or its default.  With a name: the text or ``default``."""
        if isinstance(key, Option):
            return self.of(key)
        return self._values.get(key, default)

    def stats_mode(self, column: str) -> StatsMode:
        """The statistics mode of a column: its own, else the table's."""
        text = self._values.get(f"fields.{column}.stats-mode")
        return self.of(STATS_MODE) if text is None else parse_column_stats(column, text)


def parse_column_stats(column: str, text: str) -> StatsMode:
    """The value of ``fields.<column>.stats-mode``."""
    try:
        return parse_stats_mode(text)
    except ValueError as e:
        raise InvalidRequest(f"option 'fields.{column}.stats-mode' = '{text}' is not allowed; it takes {_STATS}") from e


def is_known(name: str) -> bool:
    """Whether this package gives the option a meaning (declared, or of a known pattern)."""
    return name in OPTIONS or name in IMMUTABLE or name.startswith(_PREFIXES)


FALLBACK_BRANCH = "scan.fallback-branch"
PRIMARY_BRANCH = "scan.primary-branch"


def branch_option(options: Mapping[str, str]) -> tuple[str, str] | None:
    """The option that names another branch to read with a table, and the branch; None if neither is set."""
    for option in (FALLBACK_BRANCH, PRIMARY_BRANCH):
        if branch := options.get(option, "").strip():
            return option, branch
    return None


def misspelt(names: Iterable[str]) -> list[str]:
    """Return a warning for each unknown option whose name is close to a known one: Paimon ignores those silently."""
    import difflib  # only writers of options need it

    found = []
    for name in names:
        if name in OPTIONS or name in IMMUTABLE:
            continue
        parts = name.split(".")
        near = difflib.get_close_matches(name, OPTIONS, 1, 0.85)
        if parts[0] == "file-index" and len(parts) == 3:
            near = [] if parts[2] == "columns" else [f"file-index.{parts[1]}.columns"]
        found += [f"unknown option '{name}': did you mean '{n}'?" for n in near]
    return found


def validate(values: Mapping[str, str]) -> None:
    """Check every value whose option is known; unknown options pass.

    Raises :class:`InvalidRequest` naming the option, the value and what is allowed.
    """
    for name, text in values.items():
        if not isinstance(text, str):
            raise InvalidRequest(f"option '{name}' must be text, not {text!r}")
        option = OPTIONS.get(name)
        if option is not None:
            option.read(text)
            continue
        column = _COLUMN_STATS.match(name)
        if column is not None:
            parse_column_stats(column.group(1), text)
    options = Options(values)
    if options.of(COMMIT_MIN_WAIT) > options.of(COMMIT_MAX_WAIT):
        raise InvalidRequest(
            f"option '{COMMIT_MIN_WAIT.name}' = '{values.get(COMMIT_MIN_WAIT.name)}' is above '{COMMIT_MAX_WAIT.name}'"
        )
    low, high = options.of(SNAPSHOT_RETAINED_MIN), options.of(SNAPSHOT_RETAINED_MAX)
    if low > high:
        raise InvalidRequest(
            f"option '{SNAPSHOT_RETAINED_MIN.name}' = {low} is above '{SNAPSHOT_RETAINED_MAX.name}' = {high}"
        )


def check_alter(old: Mapping[str, str], new: Mapping[str, str], has_snapshot: bool) -> None:
    """Refuse a change of options that the table's files could not follow.

    ``old`` and ``new`` are the whole mappings before and after.  Raises :class:`InvalidRequest` naming the option, its
    value now and the one asked for.  Source: table-format spec, section 2.7.
    """
    validate(new)
    changed = [n for n in sorted(set(old) | set(new)) if old.get(n) != new.get(n)]
    for name in changed:
        if name in ("path", "type"):
            _refuse(name, old, new, "never")
    if not has_snapshot:
        return
    for name in changed:
        if name in IMMUTABLE:
            _refuse(name, old, new, "not once the table has a snapshot")
    before, after = Options(old), Options(new)
    if before.of(BUCKET) != after.of(BUCKET) and BUCKET.name not in new:
        _refuse(BUCKET.name, old, new, "but not be taken away once the table has a snapshot")
    if before.of(BUCKET) != after.of(BUCKET) and -1 in (before.of(BUCKET), after.of(BUCKET)):
        _refuse("bucket", old, new, "not from or to -1 once the table has a snapshot")
    if before.of(DV_ENABLED) != after.of(DV_ENABLED):
        # Paimon allows it with 'deletion-vectors.modifiable', and takes the caller's word that the table is compacted.
        call = f"{'disable' if before.of(DV_ENABLED) else 'enable'}_deletion_vectors(table)"
        _refuse(DV_ENABLED.name, old, new, f"on a table with data only by {call}, which compacts it fully first")
    for name in ("ignore-delete", "ignore-update-before"):
        if old.get(name, "").lower() == "true" and new.get(name, "").lower() != "true":
            _refuse(name, old, new, "not from true to false")


def _refuse(name: str, old: Mapping[str, str], new: Mapping[str, str], when: str) -> None:
    was, asked = (f"'{v[name]}'" if name in v else "unset" for v in (old, new))
    raise InvalidRequest(f"option '{name}' may change {when}: it is {was}, asked for {asked}")
