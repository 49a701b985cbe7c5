"""Table options: every option that bitlake reads or must recognise, declared once.

A declaration has a name, a kind of value, a default and, below it, its description.  Values live as text in the schema
file; :class:`Options` reads them typed.  Unknown options are kept as they are, because another engine may know them.

Sources: table-format spec, sections 2 (what cannot change) and 10; index-format spec, sections 9.3, 10 and 11
(primary-key tables); Paimon's options ``tag.*``, ``partition.expiration-*``, ``partition.timestamp-*``,
``end-input.*`` and ``metadata.iceberg.*``.

How old a partition may become (:class:`PartitionAge`) is one value of several options.  Patterns name partition columns
as ``$dt``, formatters are Java's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bitlake import arguments
from bitlake.errors import InvalidRequest
from bitlake.fileindex import INDEX_PREFIX
from bitlake.metadata import option_types as kind
from bitlake.metadata.option_types import Kind, StatsMode, parse_stats_mode
from bitlake.metadata.option_types import Option as Option

T = TypeVar("T")
OPTIONS: dict[str, Option[Any]] = {}
"""Every declared option by name."""


def _declare(
    name: str, kind: Kind[T], default: T, text: str | None = None, immutable: bool = False, former: tuple[str, ...] = ()
) -> Option[T]:
    """Declare an option; ``text``: its default as written in a statement."""
    option = Option(name, kind.parse, default, kind.allowed, text, immutable, former)
    OPTIONS[name] = option
    return option


def _option(name: str, kind: Kind[T], default: str, immutable: bool = False, former: tuple[str, ...] = ()) -> Option[T]:
    return _declare(name, kind, kind.parse(default), default or None, immutable, former)


def _unset(name: str, kind: Kind[T], immutable: bool = False) -> Option[T | None]:
    """Declare an option whose value is None where it is not set."""
    return _declare(name, Kind[T | None](kind.parse, kind.allowed), None, immutable=immutable)


# --- tables, data files, snapshots and commits ------------------------------------------------------------------------

TYPE = _option("type", kind.TEXT, "table", immutable=True)
"""Kind of table: ``table``, or ``materialized-table``, whose rows Flink refreshes by a query; others are refused."""
PAIMON_TYPES = ("table", "materialized-table")
"""Types of tables in Paimon's own format."""
PATH = _unset("path", kind.TEXT)
"""Where the table is; never stored by bitlake."""
BUCKET = _option("bucket", kind.BUCKET, "-1")
"""Number of buckets a partition's rows are spread over."""
BUCKET_KEY = _declare("bucket-key", kind.COLUMN_LIST, (), immutable=True)
"""Columns whose hash picks the bucket; blanks count and so does the order."""
BUCKET_FUNCTION = _option("bucket-function.type", kind.word("default", "mod", "hive"), "default", immutable=True)
"""How the bucket key becomes a bucket."""
PRIMARY_KEY = _unset("primary-key", kind.TEXT, immutable=True)
"""Key columns; moved into the schema's list at creation."""
PARTITION = _unset("partition", kind.TEXT, immutable=True)
"""Partition columns; moved into the schema's list at creation."""
PRIMARY_KEY_NULLABLE = _option("primary-key.nullable", kind.BOOL, "false", immutable=True)
"""Whether key columns may hold NULL."""
PARTITION_DEFAULT_NAME = _option("partition.default-name", kind.TEXT, "__DEFAULT_PARTITION__")
"""Folder name of NULL and blank partition values."""
PARTITION_LEGACY_NAME = _option("partition.legacy-name", kind.BOOL, "true")
"""Render DATE partitions as epoch days and timestamps in ISO form."""
PARTITION_END_INPUT_DONE = _option("partition.end-input-to-done", kind.BOOL, "false")
"""Batch writes mark the partitions that they wrote to as complete."""
FILE_FORMAT = _option("file.format", kind.word("parquet", "orc", "avro", "csv", "json"), "parquet")
"""Format of new data files."""
FILE_COMPRESSION = _option("file.compression", kind.CODEC, "zstd")
"""Compression of data files: zstd, snappy, gzip, lz4 or none."""
ZSTD_LEVEL = _option("file.compression.zstd-level", kind.between(1, 22), "1")
"""zstd level of data files and manifests."""
FILE_BLOCK_SIZE = _unset("file.block-size", kind.SIZE_ABOVE_0)
"""Row group (Parquet) or stripe size; unset: 128 MB."""
# Plain numbers, no units: Paimon (Java) hands both to Parquet's own configuration.
PARQUET_PAGE_SIZE = _unset("parquet.page.size", kind.at_least(1024))
"""Uncompressed bytes of a Parquet page at which the next begins; unset: 262144."""
PARQUET_PAGE_ROWS = _unset("parquet.page.row.count.limit", kind.at_least(64))
"""Rows of a Parquet page at which the next begins; unset: 4096 with file indexes or a primary key, else 20000."""
FILE_SUFFIX_COMPRESSION = _option("file.suffix.include.compression", kind.BOOL, "false")
"""Put the codec into data file names."""
TARGET_FILE_SIZE = _unset("target-file-size", kind.SIZE_ABOVE_0)
"""Roll data files at this size; unset: 256 MB for append tables."""
TARGET_FILE_ROWS = _unset("target-file-row-num", kind.at_least(1, kind.LONG_MAX))
"""Roll data files at this many rows; unset: never."""
DATA_FILE_PREFIX = _option("data-file.prefix", kind.FILE_PREFIX, "data-")
"""Prefix of data file names."""
DATA_FILE_DIRECTORY = _unset("data-file.path-directory", kind.DIRECTORY, immutable=True)
"""Folder of data files under the table."""
EXTERNAL_PATHS = _unset("data-file.external-paths", kind.EXTERNAL_PATHS)
"""Where new data files go, not to the table."""
EXTERNAL_PATHS_STRATEGY = _option(
    "data-file.external-paths.strategy",
    kind.word("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
    "none",
)
"""How a new data file chooses an external path; none: it goes to the table's folder."""
EXTERNAL_PATHS_FS = _unset("data-file.external-paths.specific-fs", kind.TEXT)
"""The scheme that specific-fs chooses."""
EXTERNAL_PATHS_WEIGHTS = _unset("data-file.external-paths.weights", kind.WEIGHTS)
"""Weights of the external paths, in their order, for weight-robin."""
STATS_MODE = _option("metadata.stats-mode", kind.STATS_MODE, "truncate(16)")
"""What column statistics manifests keep."""
STATS_KEEP_FIRST = _option("metadata.stats-keep-first-n-columns", kind.at_least(-1), "-1")
"""Keep statistics of the first n columns only; -1: of all."""
STATS_DENSE = _option("metadata.stats-dense-store", kind.BOOL, "true")
"""Leave columns without statistics out, listing the others."""
MANIFEST_TARGET_SIZE = _option("manifest.target-file-size", kind.SIZE, "8 mb")
"""Roll and merge manifests at this size."""
MANIFEST_MERGE_MIN = _option("manifest.merge-min-count", kind.at_least(1), "30")
"""Merge the newest manifests once there are this many."""
MANIFEST_FULL_SIZE = _option("manifest.full-compaction-threshold-size", kind.SIZE, "16 mb")
"""Rewrite small and deleting manifests from this total size on."""
MANIFEST_FORMAT = _option("manifest.format", kind.TEXT, "avro")
"""Format of manifests; only 'avro' is written here."""
MANIFEST_COMPRESSION = _option("manifest.compression", kind.word("zstd", "snappy", "deflate", "none"), "zstd")
"""Codec of manifests."""
SNAPSHOT_RETAINED_MIN = _option("snapshot.num-retained.min", kind.at_least(1), "10")
"""Snapshots that expiry always keeps."""
SNAPSHOT_RETAINED_MAX = _option("snapshot.num-retained.max", kind.at_least(1), "2147483647")
"""Snapshots above this number expire."""
SNAPSHOT_TIME_RETAINED = _option("snapshot.time-retained", kind.DURATION, "1 h")
"""Snapshots younger than this are kept."""
SNAPSHOT_EXPIRE_LIMIT = _option("snapshot.expire.limit", kind.at_least(1), "50")
"""Snapshots that one expiry removes at most."""
CONSUMER_EXPIRATION_TIME = _unset("consumer.expiration-time", kind.DURATION)
"""An expiry of snapshots deletes consumers that made no progress for this long; unset: none."""
SNAPSHOT_IGNORE_EMPTY = _unset("snapshot.ignore-empty-commit", kind.BOOL)
"""No effect: a batch write of nothing makes no snapshot, and a batch of a stream always makes one."""
CONSUMER_CHANGELOG_ONLY = _option("consumer.changelog-only", kind.BOOL, "false")
"""Expiry of snapshots ignores the progress of consumers."""
COMMIT_MAX_RETRIES = _option("commit.max-retries", kind.at_least(0), "10")
"""Attempts after a failed one."""
COMMIT_MIN_WAIT = _option("commit.min-retry-wait", kind.DURATION, "10 ms")
"""First wait between attempts; it doubles."""
COMMIT_MAX_WAIT = _option("commit.max-retry-wait", kind.DURATION, "10 s")
"""Longest wait between attempts."""
COMMIT_TIMEOUT = _unset("commit.timeout", kind.DURATION)
"""Give up a commit after this long; unset: never."""
COMMIT_USER_PREFIX = _unset("commit.user-prefix", kind.TEXT)
"""Put before the random commit user."""
FORCE_SNAPSHOT = _option("commit.force-create-snapshot", kind.BOOL, "false")
"""Make a snapshot even for an empty commit."""
INDEX_THRESHOLD = _option("file-index.in-manifest-threshold", kind.SIZE, "500 b")
"""Embed a file's index in the manifest up to this size."""
INDEX_READ = _option("file-index.read.enabled", kind.BOOL, "true")
"""Use file indexes when reading."""
INDEX_ON_UNREADABLE = _option("file-index.on-unreadable", kind.word("scan", "fail"), "scan")
"""What to do with an index that cannot be read: scan the file with a warning, or fail (bitlake's own option)."""
SPARK_READ_PATH = _option("read.spark-path", kind.word("auto", "driver", "spark", "workers"), "auto")
"""How a query on Spark reads data files: auto chooses by cost; driver, spark (Spark's own Parquet reader, for the files
that it can read) or workers (Python workers) forces a way, to diagnose a query (bitlake's own option)."""
SPARK_PLANNING_ENTRIES = _unset("read.spark-planning-entries", kind.at_least(1))
"""From how many manifest entries on a query with a condition on Spark decodes them in Spark's tasks; unset: 5 million,
if the executors have four cores (bitlake's own option)."""
READ_JOIN_FILTERS = _option("read.join-filters", kind.BOOL, "true")
"""In a join, read the keys of a small table first and leave out files of this one that hold none of them (bitlake's own
option)."""
READ_DRIVER_QUERIES = _option("read.driver-queries", kind.BOOL, "true")
"""On Spark, let DuckDB compute queries of few rows in the driver, without a Spark job (bitlake's own option)."""
DYNAMIC_OVERWRITE = _option("dynamic-partition-overwrite", kind.BOOL, "true")
"""No effect: the statement and the session's ``partitionOverwriteMode`` decide what INSERT OVERWRITE replaces."""
WRITE_ONLY = _option("write-only", kind.BOOL, "false", former=("write.compaction-skip",))
"""Writers neither compact nor expire."""
SCAN_IGNORE_CORRUPT = _option("scan.ignore-corrupt-files", kind.BOOL, "false")
"""Leave data files out of queries that are damaged."""
SCAN_IGNORE_LOST = _option("scan.ignore-lost-files", kind.BOOL, "false")
"""Leave data files out of queries that are missing."""
DV_ENABLED = _option("deletion-vectors.enabled", kind.BOOL, "false")
"""Mark deleted rows in deletion vectors."""
DV_MODIFIABLE = _option("deletion-vectors.modifiable", kind.BOOL, "false")
"""Allow deletion-vectors.enabled to change."""
DV_BITMAP64 = _option("deletion-vectors.bitmap64", kind.BOOL, "false")
"""Write 64-bit deletion vectors."""
DV_MERGE_ON_READ = _option("deletion-vectors.merge-on-read", kind.BOOL, "false")
"""Merge level 0 too when reading."""
DV_TARGET_SIZE = _option("deletion-vector.index-file.target-size", kind.SIZE, "2 mb")
"""Roll deletion vector files at this size."""
MERGE_ENGINE = _option(
    "merge-engine",
    kind.word("deduplicate", "partial-update", "aggregation", "first-row"),
    "deduplicate",
    immutable=True,
)
"""How rows of one primary key become one."""
CHANGELOG_PRODUCER = _option("changelog-producer", kind.word("none", "input", "full-compaction", "lookup"), "none")
"""How changelogs are made."""
SEQUENCE_FIELD = _unset("sequence.field", kind.TEXT)
"""Columns that order rows of one key."""
DYNAMIC_BUCKET_TARGET = _option("dynamic-bucket.target-row-num", kind.at_least(1, kind.LONG_MAX), "2000000")
"""Rows a dynamic bucket takes."""
DYNAMIC_BUCKET_INITIAL = _unset("dynamic-bucket.initial-buckets", kind.at_least(1), immutable=True)
"""Buckets to begin with."""
DYNAMIC_BUCKET_MAX = _option("dynamic-bucket.max-buckets", kind.at_least(-1), "-1")
"""Most dynamic buckets; -1: no limit."""
INDEX_IN_DATA_DIR = _option("index-file-in-data-file-dir", kind.BOOL, "false", immutable=True)
"""Put table index files beside data."""
ROW_TRACKING = _option("row-tracking.enabled", kind.BOOL, "false", immutable=True)
"""Give every row an id."""
DATA_EVOLUTION = _option("data-evolution.enabled", kind.BOOL, "false", immutable=True)
"""Store columns of a row in several files."""
QUERY_AUTH = _option("query-auth.enabled", kind.BOOL, "false")
"""The catalog's server decides which rows and values a query may see."""
NULL_TO_NOT_NULL_OFF = _option("alter-column-null-to-not-null.disabled", kind.BOOL, "true")
"""Refuse to make a column NOT NULL."""
EXPLICIT_CAST_OFF = _option("disable-explicit-type-casting", kind.BOOL, "false")
"""Allow only implicit casts when a type changes."""


# --- primary-key tables: files ----------------------------------------------------------------------------------------

FORMAT_PER_LEVEL = _option(
    "file.format.per.level", kind.by_level(kind.word("parquet", "orc", "avro"), "0:avro,3:parquet"), ""
)
"""Format of new files by level."""
COMPRESSION_PER_LEVEL = _option("file.compression.per.level", kind.by_level(kind.CODEC, "0:lz4,1:zstd"), "")
"""Compression of new files by level."""
STATS_PER_LEVEL = _option("metadata.stats-mode.per.level", kind.by_level(kind.STATS_MODE, "0:none"), "")
"""What statistics manifests keep, by level."""
THIN_MODE = _option("data-file.thin-mode", kind.BOOL, "false")
"""Leave the key's copy out of data files."""
CHANGELOG_PREFIX = _option("changelog-file.prefix", kind.FILE_PREFIX, "changelog-")
"""Begins changelog file names."""
CHANGELOG_FORMAT = _unset("changelog-file.format", kind.word("parquet", "orc", "avro"))
"""Format of changelog files; unset: as data files."""
CHANGELOG_COMPRESSION = _unset("changelog-file.compression", kind.CODEC)
"""Compression of changelog files; unset: as data files."""
CHANGELOG_STATS = _unset("changelog-file.stats-mode", kind.STATS_MODE)
"""Statistics of changelog files; unset: as data files."""


# --- primary-key tables: writing --------------------------------------------------------------------------------------

WRITE_BUFFER_SIZE = _option("write-buffer-size", kind.SIZE_ABOVE_0, "256 mb")
"""Rows of a bucket that are gathered and sorted in memory before they become a file."""
IGNORE_DELETE = _option(
    "ignore-delete",
    kind.BOOL,
    "false",
    former=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
)
"""Drop rows of kind -U and -D."""
IGNORE_UPDATE_BEFORE = _option("ignore-update-before", kind.BOOL, "false")
"""Drop rows of kind -U."""
ROWKIND_FIELD = _unset("rowkind.field", kind.text("a column name"), immutable=True)
"""Column that holds the row kind."""
OVERWRITE_UPGRADE = _option("overwrite-upgrade", kind.BOOL, "true")
"""An overwrite puts files that do not overlap straight into the highest level."""

POSTPONE_BUCKETS = _unset("postpone.default-bucket-num", kind.at_least(1))
"""Buckets of a partition whose rows get their first ones; unset: by their size."""
POSTPONE_FIXED = _option("postpone.batch-write-fixed-bucket", kind.BOOL, "true")
"""Batch writes put rows into buckets at once, instead of postponing them."""
POSTPONE_FIXED_MOST = _option("postpone.batch-write-fixed-bucket.max-parallelism", kind.at_least(1), "2048")
"""Buckets that such a write gives a new partition, at most."""
POSTPONE_ROWS = _unset("postpone.target-row-num-per-bucket", kind.at_least(1, kind.LONG_MAX))
"""Postponed rows that a bucket is to get; unset: by size."""
POSTPONE_SIZE = _option("postpone.target-size-per-bucket", kind.SIZE_ABOVE_0, "1 gb")
"""Bytes of postponed rows that a bucket is to get."""


# --- compaction -------------------------------------------------------------------------------------------------------

COMPACTION_TRIGGER = _option("num-sorted-run.compaction-trigger", kind.at_least(1), "5")
"""Sorted runs from which on a bucket is compacted."""
STOP_TRIGGER = _unset("num-sorted-run.stop-trigger", kind.at_least(1))
"""Sorted runs above which writes wait; unset: trigger + 3."""
NUM_LEVELS = _unset("num-levels", kind.at_least(2))
"""Levels of a bucket; unset: the compaction trigger + 1."""
SIZE_AMPLIFICATION = _option("compaction.max-size-amplification-percent", kind.at_least(0), "200")
"""Size of all runs but the oldest, in percent of it, at most."""
SIZE_RATIO = _option("compaction.size-ratio", kind.at_least(0), "1")
"""Percent by which a run may be larger than those compacted with it."""
OFFPEAK_START = _option("compaction.offpeak.start.hour", kind.HOUR, "-1")
"""Off-peak begins."""
OFFPEAK_END = _option("compaction.offpeak.end.hour", kind.HOUR, "-1")
"""Off-peak ends."""
OFFPEAK_RATIO = _option("compaction.offpeak-ratio", kind.at_least(0), "0")
"""Added to the size ratio in off-peak hours."""
OPTIMIZATION_INTERVAL = _unset("compaction.optimization-interval", kind.DURATION)
"""Compact a bucket fully this often."""
TOTAL_SIZE_THRESHOLD = _unset("compaction.total-size-threshold", kind.SIZE)
"""Compact a bucket fully below this size."""
INCREMENTAL_SIZE_THRESHOLD = _unset("compaction.incremental-size-threshold", kind.SIZE)
"""Compact a bucket fully when more than this is above its highest level."""
FORCE_UP_LEVEL_0 = _option("compaction.force-up-level-0", kind.BOOL, "false")
"""Every compaction takes all of level 0."""
FORCE_REWRITE_ALL = _option("compaction.force-rewrite-all-files", kind.BOOL, "false")
"""A full compaction rewrites every file."""
SMALL_FILE_RATIO = _option("compaction.small-file-ratio", kind.RATIO, "0.7")
"""Files above this part of the target size are left as they are."""
MIN_FILES = _option("compaction.min.file-num", kind.at_least(1), "5")
"""Append tables: small files are merged from this many on."""
DELETE_RATIO = _option("compaction.delete-ratio-threshold", kind.RATIO, "0.2")
"""A file is rewritten when more of its rows than this part are deleted; with a primary key: only if set."""
OPEN_FILE_COST = _option("source.split.open-file-cost", kind.SIZE, "4 mb")
"""What a file counts beyond its size when files are put together."""
LOOKUP_COMPACT = _option("lookup-compact", kind.word("radical", "gentle"), "radical")
"""How eagerly level 0 is compacted."""
LOOKUP_INTERVAL = _unset("lookup-compact.max-interval", kind.at_least(1))
"""Gentle: level 0 is compacted at this many writes; unset: twice the trigger."""
FORCE_LOOKUP = _option("force-lookup", kind.BOOL, "false", immutable=True)
"""Compact level 0 by looking keys up."""


# --- primary-key tables: merging rows of one key ----------------------------------------------------------------------

SEQUENCE_ORDER = _option("sequence.field.sort-order", kind.word("ascending", "descending"), "ascending")
"""Whether the largest or the smallest value of the sequence field is the newest."""
SNAPSHOT_ORDERING = _option("sequence.snapshot-ordering", kind.BOOL, "false", immutable=True)
"""Order rows of one key by their snapshot."""
AGGREGATION_REMOVE = _option("aggregation.remove-record-on-delete", kind.BOOL, "false", immutable=True)
"""Aggregation: a row of kind -D removes the key's row."""
PARTIAL_REMOVE = _option("partial-update.remove-record-on-delete", kind.BOOL, "false", immutable=True)
"""Partial update: a row of kind -D removes the key's row."""
PARTIAL_REMOVE_GROUP = _unset(
    "partial-update.remove-record-on-sequence-group", kind.text("columns between commas"), immutable=True
)
"""Partial update: a -D that is newer for these sequence groups removes the row."""


# --- primary-key tables: changelogs and record-level expiry -----------------------------------------------------------

ROW_DEDUPLICATE = _option("changelog-producer.row-deduplicate", kind.BOOL, "false")
"""Leave changes that change nothing out of changelogs."""
DELETE_FORCE_CHANGELOG = _option("delete.force-produce-changelog", kind.BOOL, "false")
"""A DELETE of some partitions writes -D rows, which changelogs and streams contain, instead of dropping files."""
STREAMING_OVERWRITE = _option("streaming-read-overwrite", kind.BOOL, "false")
"""Streams of a primary-key table contain the rows that an overwrite removes and adds."""
STREAMING_APPEND_OVERWRITE = _option("streaming-read-append-overwrite", kind.BOOL, "false")
"""Streams of an append table contain the rows of the files that an overwrite adds."""
STREAMING_DELAY = _unset("streaming.read.snapshot.delay", kind.DURATION)
"""Streams read the changes of a snapshot once it is this old; unset: at once."""
FULL_COMPACTION_COMMITS = _unset("full-compaction.delta-commits", kind.at_least(1))
"""Compact fully after this many commits."""
EXPIRE_TIME = _unset("record-level.expire-time", kind.DURATION)
"""Compactions drop rows that are older than this by the time field."""
EXPIRE_FIELD = _unset("record-level.time-field", kind.text("a column name"))
"""The column that record-level expiry goes by: INT (seconds), BIGINT (seconds or milliseconds) or TIMESTAMP."""
CHANGELOG_RETAINED_MIN = _unset("changelog.num-retained.min", kind.at_least(1))
"""Changelogs that expiry always keeps; unset: as snapshots."""
CHANGELOG_RETAINED_MAX = _unset("changelog.num-retained.max", kind.at_least(1))
"""Changelogs above this number expire; unset: as snapshots."""
CHANGELOG_TIME_RETAINED = _unset("changelog.time-retained", kind.DURATION)
"""Changelogs younger than this are kept; unset: as snapshots."""


# --- tags -------------------------------------------------------------------------------------------------------------

# Commits create and expire tags; ``CALL sys.trigger_tag_automatic_creation`` creates them without a commit.

TAG_AUTOMATIC_CREATION = _option(
    "tag.automatic-creation", kind.word("none", "process-time", "watermark", "batch"), "none"
)
"""Which time of a snapshot says of which period it is; batch: each write moves a tag of its day."""
TAG_CREATION_PERIOD = _option("tag.creation-period", kind.word("daily", "hourly", "two-hours"), "daily")
"""How long a period is."""
TAG_CREATION_PERIOD_DURATION = _unset("tag.creation-period-duration", kind.DURATION)
"""How long a period is, instead of the words."""
TAG_CREATION_DELAY = _option("tag.creation-delay", kind.DURATION, "0 ms")
"""How late rows of a period may still come."""
TAG_PERIOD_FORMATTER = _option(
    "tag.period-formatter", kind.word("with_dashes", "without_dashes", "without_dashes_and_spaces"), "with_dashes"
)
"""How a period is written as a tag's name."""
TAG_NUM_RETAINED = _unset("tag.num-retained-max", kind.at_least(1))
"""How many tags made by commits there may be."""
TAG_BATCH_NAME = _unset("tag.batch.customized-name", kind.text("a tag's name"))
"""The tag that writes move, instead of one a day."""
TAG_TIME_EXPIRE = _option("tag.time-expire-enabled", kind.BOOL, "false")
"""Whether commits delete the tags whose retention is over."""
TAG_DEFAULT_RETAINED = _unset("tag.default-time-retained", kind.DURATION)
"""How long new tags without a retention of their own stay."""
TAG_AUTOMATIC_COMPLETION = _option("tag.automatic-completion", kind.BOOL, "false")
"""Whether periods without a snapshot of their own get a tag too."""
TAG_SUCCESS_FILE = _option("tag.create-success-file", kind.BOOL, "false")
"""Whether a file in ``tag/tag-success-file`` shows that a tag is complete."""
WATERMARK_ZONE = _option("sink.watermark-time-zone", kind.ZONE, "UTC")
"""The time zone in which watermarks are read as times."""
PROCESS_TIME_ZONE = _unset("sink.process-time-zone", kind.ZONE)
"""The time zone of commit times; unset: this machine's."""


# --- partition expiry -------------------------------------------------------------------------------------------------

# Partitions expire on request (``CALL sys.expire_partitions``), or after batch writes.

PARTITION_EXPIRATION_TIME = _unset("partition.expiration-time", kind.DURATION)
"""Partitions older than this may expire."""
PARTITION_EXPIRATION_CHECK_INTERVAL = _option("partition.expiration-check-interval", kind.DURATION, "1 h")
"""No effect: how often Paimon's streaming writers expire partitions; bitlake's do not."""
PARTITION_EXPIRATION_MAX_NUM = _option("partition.expiration-max-num", kind.at_least(1), "100")
"""Partitions that one call expires."""
PARTITION_EXPIRATION_BATCH_SIZE = _unset("partition.expiration-batch-size", kind.at_least(0))
"""Most partitions that expiry drops in one commit; unset or 0: all of them."""
PARTITION_EXPIRATION_STRATEGY = _option(
    "partition.expiration-strategy", kind.word("values-time", "update-time"), "values-time"
)
"""Whether a partition's age is that of a time in its values, or of its last file."""
PARTITION_TIMESTAMP_FORMATTER = _unset(
    "partition.timestamp-formatter", kind.text("a pattern of Java's DateTimeFormatter")
)
"""How times are written in partition values; unset: 'yyyy-MM-dd HH:mm:ss' or 'yyyy-MM-dd'."""
PARTITION_TIMESTAMP_PATTERN = _unset("partition.timestamp-pattern", kind.text("text with $column in it"))
"""Where times are in partition values, as '$dt $hour:00:00'; unset: in the first partition column."""
END_INPUT_CHECK_PARTITION_EXPIRE = _option("end-input.check-partition-expire", kind.BOOL, "false")
"""Batch writes and compactions expire partitions when they are committed, by partition.expiration-time."""


# --- Iceberg metadata -------------------------------------------------------------------------------------------------

# bitlake writes Iceberg metadata into the table's folder, or into the folder of an Iceberg Hadoop catalog.  It
# registers tables in no Hive metastore and no REST catalog, so the options for these are refused.

DISABLED, TABLE_LOCATION, HADOOP_CATALOG, CATALOG_LOCATION = (
    *("disabled", "table-location", "hadoop-catalog", "catalog-location"),
)
_AVRO_CODECS = {"snappy": "snappy", "zstd": "zstandard", "zstandard": "zstandard", "deflate": "deflate", "null": "null"}
_STORAGES = kind.word(DISABLED, TABLE_LOCATION, HADOOP_CATALOG)
ICEBERG_STORAGE = _option(
    "metadata.iceberg.storage",
    Kind(
        _STORAGES.parse,
        f"{_STORAGES.allowed}; bitlake registers tables in no Hive or REST catalog: a reader loads the table from the "
        "path of its metadata file, or through an Iceberg Hadoop catalog",
    ),
    DISABLED,
)
"""Where every commit writes Iceberg metadata, so that Iceberg readers can read the table's data files."""
ICEBERG_STORAGE_LOCATION = _unset("metadata.iceberg.storage-location", kind.word(TABLE_LOCATION, CATALOG_LOCATION))
"""The folder of Iceberg metadata: the table's own, or that of a Hadoop catalog; unset: as the storage says."""
ICEBERG_VERSION = _option("metadata.iceberg.format-version", Kind(kind.between(2, 3).parse, "2 or 3"), "2")
"""Iceberg format version; only 3 has deletion vectors."""
ICEBERG_COMPACT_MIN = _option("metadata.iceberg.compaction.min.file-num", kind.at_least(1), "10")
"""Small Iceberg manifests from which on they are merged, once they have the target size together."""
ICEBERG_COMPACT_MAX = _option("metadata.iceberg.compaction.max.file-num", kind.at_least(1), "50")
"""Small Iceberg manifests from which on they are always merged."""
ICEBERG_DELETE_OLD = _option("metadata.iceberg.delete-after-commit.enabled", kind.BOOL, "true")
"""Delete old Iceberg metadata files after each commit."""
ICEBERG_PREVIOUS_MAX = _option("metadata.iceberg.previous-versions-max", kind.at_least(0), "0")
"""Old Iceberg metadata files that each commit keeps."""
ICEBERG_COMPRESSION = _option(
    "metadata.iceberg.manifest-compression",
    Kind(lambda text: _AVRO_CODECS[kind.word(*_AVRO_CODECS).parse(text)], "one of snappy, zstd, deflate, null"),
    "snappy",
)
"""Codec of Iceberg manifests and manifest lists."""
ICEBERG_LEGACY = _option("metadata.iceberg.manifest-legacy-version", kind.BOOL, "false")
"""Name the counts in manifest lists as Iceberg 1.4 does."""


def _refused(text: str) -> str:
    raise ValueError(text)


_NO_CATALOG = Kind(
    _refused,
    "no value: it configures a Hive or REST catalog, in which bitlake registers no tables; use "
    f"'{ICEBERG_STORAGE.name}' = '{TABLE_LOCATION}' or '{HADOOP_CATALOG}'",
)
ICEBERG_URI = _unset("metadata.iceberg.uri", _NO_CATALOG)
"""Refused: the URI of a Hive metastore."""
ICEBERG_DATABASE = _unset("metadata.iceberg.database", _NO_CATALOG)
"""Refused: the database in a Hive or REST catalog."""
ICEBERG_TABLE = _unset("metadata.iceberg.table", _NO_CATALOG)
"""Refused: the name in a Hive or REST catalog."""
ICEBERG_HIVE_CONF = _unset("metadata.iceberg.hive-conf-dir", _NO_CATALOG)
"""Refused: the configuration folder of Hive."""
ICEBERG_HADOOP_CONF = _unset("metadata.iceberg.hadoop-conf-dir", _NO_CATALOG)
"""Refused: the configuration folder of Hadoop for a Hive catalog."""
ICEBERG_HIVE_CLIENT = _unset("metadata.iceberg.hive-client-class", _NO_CATALOG)
"""Refused: the client class of a Hive metastore."""
ICEBERG_HIVE_STATS = _unset("metadata.iceberg.hive-skip-update-stats", _NO_CATALOG)
"""Refused: whether Hive's statistics stay as they are."""
ICEBERG_GLUE_ARCHIVE = _unset("metadata.iceberg.glue.skip-archive", _NO_CATALOG)
"""Refused: whether AWS Glue keeps no old versions."""
_CATALOG_PREFIXES = ("metadata.iceberg.rest.", "metadata.iceberg.table-properties.")
"""Options of an Iceberg REST catalog by their prefixes, which are refused too."""


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
FORMER_NAMES = {name: option for option in OPTIONS.values() for name in option.former_names}
"""The options by their former names, under which they still act."""

_COLUMN_STATS = re.compile(r"^fields\.(.+)\.stats-mode$", re.DOTALL)
FIELDS = "fields."
"""Options of one column or of several: ``fields.<column>.<option>``."""
SEQUENCE_GROUP = ".sequence-group"
_PREFIXES = (INDEX_PREFIX, "bitlake.index.", FIELDS, "field.")


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
        if text is None and option.former_names:
            name = next((n for n in option.former_names if n in self._values), None)
            return option.default if name is None else option.read(self._values[name], name)
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
        raise InvalidRequest(
            f"option 'fields.{column}.stats-mode' = '{text}' is not allowed; it takes {kind.STATS_MODE.allowed}"
        ) from e


def is_known(name: str) -> bool:
    """Whether this package gives the option a meaning (declared, or of a known pattern)."""
    return name in OPTIONS or name in IMMUTABLE or name in FORMER_NAMES or name.startswith(_PREFIXES)


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


def option_texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return a caller's options as text, as a schema stores them; numbers and booleans are converted.

    Raises :class:`InvalidRequest` for another value.

    >>> option_texts({"bucket": 4, "write-only": True, "merge-engine": "aggregation"})
    {'bucket': '4', 'write-only': 'true', 'merge-engine': 'aggregation'}
    """
    out = {}
    for name, value in arguments.mapping("options", options or {}).items():
        if getattr(value, "shape", None) == ():
            value = value.item()  # a NumPy scalar
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, int | float):
            value = str(value)
        out[arguments.text("the name of an option", name)] = arguments.text(f"option '{name}'", value)
    return out


def validate(values: Mapping[str, str]) -> None:
    """Check every value whose option is known; unknown options pass.

    Raises :class:`InvalidRequest` naming the option, the value and what is allowed.
    """
    for name, text in values.items():
        _validate_value(name, text)
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


def _validate_value(name: str, text: str) -> None:
    option = OPTIONS.get(name) or FORMER_NAMES.get(name)
    if option is not None:
        option.read(text, name)
        return
    if name.startswith(_CATALOG_PREFIXES):
        Option(name, _refused, "", _NO_CATALOG.allowed).read(text)
    column = _COLUMN_STATS.match(name)
    if column is not None:
        parse_column_stats(column.group(1), text)


def check_stored(table: str, values: Mapping[str, str]) -> None:
    """Raise :class:`InvalidRequest` for an invalid value that a table stores, with the statement that removes it."""
    for name, reason in invalid_values(values).items():
        raise InvalidRequest(
            f"table '{table}' stores an invalid option, which another engine may have set: {reason}; set it to such a "
            f"value, or remove it: ALTER TABLE {table} UNSET TBLPROPERTIES ('{name}')"
        )


def invalid_values(values: Mapping[str, str]) -> dict[str, str]:
    """The options whose values are invalid, and why."""
    reasons = {}
    for name, text in values.items():
        try:
            _validate_value(name, text)
        except InvalidRequest as e:
            reasons[name] = str(e)
    return reasons


def replace_invalid(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """``old`` with each invalid value replaced by the one in ``new``, or removed if ``new`` has none.

    What an invalid value meant is unknown, so that the rules for changes of an option do not apply to it.
    """
    invalid = invalid_values(old)
    kept = {name: text for name, text in old.items() if name not in invalid}
    return {**kept, **{name: new[name] for name in invalid if name in new}}


def check_alter(old: Mapping[str, str], new: Mapping[str, str], has_snapshot: bool) -> None:
    """Refuse a change of options that the table's files could not follow.

    ``old`` and ``new`` are the whole mappings before and after.  Raises :class:`InvalidRequest` naming the option, its
    value now and the one asked for.  Source: table-format spec, section 2.7.
    """
    validate(new)
    changed = [n for n in sorted(set(old) | set(new)) if old.get(n) != new.get(n)]
    for name in changed:
        if name in ("path", "type"):
            raise InvalidRequest(f"option '{name}' cannot change: {_was_and_asked(name, old, new)}")
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
    for option in (IGNORE_DELETE, IGNORE_UPDATE_BEFORE):
        if before.of(option) and not after.of(option):
            _refuse(option.name, old, new, "not from true to false")


def check_override(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Refuse options of a session or of one call that the table cannot take, by :func:`check_alter` and one more rule.

    No compaction precedes such a change, so an option is refused if it would make readers merge rows of several levels
    differently.  ALTER checks the levels instead (:func:`bitlake.mergetree.deletion_vector_mode.check_lookup_change`).
    """
    check_alter(old, new, True)
    changed, before = changed_lookup(old, new), Options(old)
    if changed is None or (before.of(MERGE_ENGINE) == "deduplicate" and before.get(SEQUENCE_FIELD) is None):
        return
    _refuse(changed.name, old, new, "only by ALTER TABLE")


def needs_lookup(options: Options) -> bool:
    """Whether compactions look up keys in the levels above; each one then compacts all of level 0."""
    return (
        options.of(DV_ENABLED)
        or options.of(MERGE_ENGINE) == "first-row"
        or options.of(CHANGELOG_PRODUCER) == "lookup"
        or options.of(FORCE_LOOKUP)
    )


def changed_lookup(old: Mapping[str, str], new: Mapping[str, str]) -> Option[Any] | None:
    """The option whose change makes compactions start or stop looking up keys; None if neither."""
    before, after = Options(old), Options(new)
    if needs_lookup(before) == needs_lookup(after):
        return None
    relevant: tuple[Option[Any], ...] = (CHANGELOG_PRODUCER, FORCE_LOOKUP, DV_ENABLED, MERGE_ENGINE)
    return next(o for o in relevant if before.of(o) != after.of(o))


def _refuse(name: str, old: Mapping[str, str], new: Mapping[str, str], when: str) -> None:
    raise InvalidRequest(f"option '{name}' may change {when}: {_was_and_asked(name, old, new)}")


def _was_and_asked(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    was, asked = (f"'{v[name]}'" if name in v else "unset" for v in (old, new))
    return f"it is {was}, asked for {asked}"


STRATEGIES = ("values-time", "update-time")
COLUMN = re.compile(r"\$(\w+)")
"""A partition column in a pattern."""


@dataclass(frozen=True, slots=True)
class PartitionAge:
    """When a partition is too old: ``limit_ms`` after its time.  Formatter and pattern None: Paimon's defaults."""

    limit_ms: int
    formatter: str | None = None
    pattern: str | None = None
    strategy: str = "values-time"

    @staticmethod
    def of(options: Mapping[str, str]) -> PartitionAge | None:
        """Read a table's options; None if they set no time; raises :class:`InvalidRequest` for bad values."""
        given = Options(options)
        limit = given.of(PARTITION_EXPIRATION_TIME)
        if limit is None:
            return None
        return PartitionAge(
            limit,
            given.of(PARTITION_TIMESTAMP_FORMATTER),
            given.of(PARTITION_TIMESTAMP_PATTERN),
            given.of(PARTITION_EXPIRATION_STRATEGY),
        )

    def check(self, partition_keys: Sequence[str]) -> None:
        """Raises :class:`InvalidRequest` for a pattern, formatter or strategy that no partition could go by."""
        if self.strategy not in STRATEGIES:
            raise InvalidRequest(f"unknown strategy '{self.strategy}'; expected {', '.join(STRATEGIES)}")
        unknown = [n for n in COLUMN.findall(self.pattern or "") if n not in partition_keys]
        if unknown:
            raise InvalidRequest(
                f"pattern '{self.pattern}' names '{unknown[0]}', and partitions have {', '.join(partition_keys)}"
            )
        if self.formatter is not None:
            kind.time_pattern(self.formatter)
