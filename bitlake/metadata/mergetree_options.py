"""The options of primary-key tables: writing, compaction, how rows of one key become one, what readers of changes see.

Declared as in :mod:`bitlake.metadata.options`.  Source: index-format spec, sections 9.3, 10 and 11, and table-format
spec, section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bitlake.metadata.option_types import (
    FILE_PREFIX,
    Option,
    StatsMode,
    at_least,
    between,
    parse_bool,
    parse_duration_ms,
    parse_file_prefix,
    parse_memory,
    parse_stats_mode,
    words,
)

T = TypeVar("T")
MERGETREE_OPTIONS: list[Option[Any]] = []
"""All of them; :data:`bitlake.metadata.options.OPTIONS` has them too."""


def _add(option: Option[T]) -> Option[T]:
    MERGETREE_OPTIONS.append(option)
    return option


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


def _int(name: str, default: int, low: int, doc: str) -> Option[int]:
    return _add(Option(name, at_least(low), default, f"a whole number ≥ {low}", doc, str(default)))


def _maybe_int(name: str, low: int, doc: str) -> Option[int | None]:
    return _add(Option[int | None](name, at_least(low), None, f"a whole number ≥ {low}", doc))


def _maybe_memory(name: str, doc: str) -> Option[int | None]:
    return _add(Option[int | None](name, parse_memory, None, "a size such as '128 mb'", doc))


def _word(name: str, default: str, allowed: tuple[str, ...], doc: str) -> Option[str]:
    return _add(Option(name, words(*allowed), default, "one of " + ", ".join(allowed), doc, default))


def _bool(name: str, default: bool, doc: str) -> Option[bool]:
    return _add(Option(name, parse_bool, default, "true or false", doc, str(default).lower()))


def _lower(text: str) -> str:
    return text.strip().lower()


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


# --- files ------------------------------------------------------------------------------------------------------------

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
           "none, counts, full or truncate(n) with n ≥ 1", "Statistics of changelog files; unset: as data files.")
)  # fmt: skip

# --- writing ----------------------------------------------------------------------------------------------------------

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
TOTAL_SIZE_THRESHOLD = _maybe_memory("compaction.total-size-threshold", "Compact a bucket fully below this size.")
INCREMENTAL_SIZE_THRESHOLD = _maybe_memory(
    "compaction.incremental-size-threshold", "Compact a bucket fully when more than this is above its highest level."
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


def _flag(name: str, doc: str, immutable: bool = False) -> Option[bool]:
    return _add(Option(name, parse_bool, False, "true or false", doc, "false", immutable))


SEQUENCE_ORDER = _add(
    Option("sequence.field.sort-order", words("ascending", "descending"), "ascending", "ascending or descending",
           "Whether the largest or the smallest value of the sequence field is the newest.", "ascending")
)  # fmt: skip
SNAPSHOT_ORDERING = _flag("sequence.snapshot-ordering", "Order rows of one key by their snapshot.", immutable=True)
AGGREGATION_REMOVE = _flag(
    "aggregation.remove-record-on-delete", "Aggregation: a row of kind -D removes the key's row.", immutable=True
)
PARTIAL_REMOVE = _flag(
    "partial-update.remove-record-on-delete", "Partial update: a row of kind -D removes the key's row.", immutable=True
)
PARTIAL_REMOVE_GROUP = _add(
    Option[str | None]("partial-update.remove-record-on-sequence-group", str, None, "columns between commas",
           "Partial update: a -D that is newer for these sequence groups removes the row.", None, True)
)  # fmt: skip
ROW_DEDUPLICATE = _flag("changelog-producer.row-deduplicate", "Leave changes that change nothing out of changelogs.")
STREAMING_OVERWRITE = _flag("streaming-read-overwrite", "Streaming readers see what an overwrite changes.")
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
