"""Options of partition expiry, which acts when it is called (``CALL sys.expire_partitions``), or after batch writes.

Source: Paimon's ``partition.expiration-*``, ``partition.timestamp-*`` and ``end-input.*`` options.
"""

from __future__ import annotations

from bitlake.metadata.option_types import Option, at_least, parse_bool, parse_duration_ms, words

_DURATION = "a duration such as '12 h' or '7 d'"

TIME = Option[int | None](
    "partition.expiration-time", parse_duration_ms, None, _DURATION, "Partitions older than this may expire."
)
CHECK_INTERVAL = Option(
    "partition.expiration-check-interval",
    parse_duration_ms,
    3_600_000,
    _DURATION,
    "How often Paimon's streaming writers expire partitions; bitlake's do not go by it.",
    "1 h",
)
MAX_NUM = Option(
    "partition.expiration-max-num", at_least(1), 100, "a whole number ≥ 1", "Partitions that one call expires.", "100"
)
STRATEGY = Option(
    "partition.expiration-strategy",
    words("values-time", "update-time"),
    "values-time",
    "one of values-time, update-time",
    "Whether a partition's age is that of a time in its values, or of its last file.",
    "values-time",
)
FORMATTER = Option[str | None](
    "partition.timestamp-formatter",
    str,
    None,
    "a pattern of Java's DateTimeFormatter",
    "How times are written in partition values; unset: 'yyyy-MM-dd HH:mm:ss' or 'yyyy-MM-dd'.",
)
PATTERN = Option[str | None](
    "partition.timestamp-pattern",
    str,
    None,
    "text with $column in it",
    "Where times are in partition values, as '$dt $hour:00:00'; unset: in the first partition column.",
)
END_INPUT = Option(
    "end-input.check-partition-expire",
    parse_bool,
    False,
    "true or false",
    "Batch writes and compactions expire partitions when they are committed, by partition.expiration-time.",
    "false",
)
EXPIRY_OPTIONS: tuple[Option[int | None] | Option[int] | Option[str] | Option[str | None] | Option[bool], ...] = (
    TIME,
    CHECK_INTERVAL,
    MAX_NUM,
    STRATEGY,
    FORMATTER,
    PATTERN,
    END_INPUT,
)
"""All of them."""
