"""Options of tags that commits make: by the period, or of each write; and of when tags go.

Source: Paimon's ``tag.*`` options.  ``CALL sys.trigger_tag_automatic_creation`` makes them without a commit.
"""

from __future__ import annotations

from typing import Any

from bitlake.metadata.option_types import Option, at_least, parse_bool, parse_duration_ms, words

_DURATION = "a duration such as '10 min' or '1 d'"
_ZONE = "the name of a time zone, such as 'Europe/Berlin' or 'UTC+02:00'"

CREATION = Option(
    "tag.automatic-creation",
    words("none", "process-time", "watermark", "batch"),
    "none",
    "one of none, process-time, watermark, batch",
    "Which time of a snapshot says of which period it is; batch: each write moves a tag of its day.",
    "none",
)
PERIOD = Option(
    "tag.creation-period",
    words("daily", "hourly", "two-hours"),
    "daily",
    "one of daily, hourly, two-hours",
    "How long a period is.",
    "daily",
)
DURATION = Option[int | None](
    "tag.creation-period-duration", parse_duration_ms, None, _DURATION, "How long a period is, instead of the words."
)
DELAY = Option(
    "tag.creation-delay", parse_duration_ms, 0, _DURATION, "How late rows of a period may still come.", "0 ms"
)
FORMATTER = Option(
    "tag.period-formatter",
    words("with-dashes", "without-dashes", "without-dashes-and-spaces"),
    "with-dashes",
    "one of with_dashes, without_dashes, without_dashes_and_spaces",
    "How a period is written as a tag's name.",
    "with_dashes",
)
NUM_RETAINED = Option[int | None](
    "tag.num-retained-max", at_least(1), None, "a whole number ≥ 1", "How many tags made by commits there may be."
)
BATCH_NAME = Option[str | None](
    "tag.batch.customized-name", str, None, "a tag's name", "The tag that writes move, instead of one a day."
)
TIME_EXPIRE = Option(
    "tag.time-expire-enabled",
    parse_bool,
    False,
    "true or false",
    "Whether commits delete the tags whose retention is over.",
    "false",
)
DEFAULT_RETAINED = Option[int | None](
    "tag.default-time-retained", parse_duration_ms, None, _DURATION, "How long new tags stay that do not say it."
)
COMPLETION = Option(
    "tag.automatic-completion",
    parse_bool,
    False,
    "true or false",
    "Whether periods without a snapshot of their own get a tag too.",
    "false",
)
WATERMARK_ZONE = Option(
    "sink.watermark-time-zone", str, "UTC", _ZONE, "The time zone in which watermarks are read as times.", "UTC"
)
PROCESS_ZONE = Option[str | None](
    "sink.process-time-zone", str, None, _ZONE, "The time zone of commit times; unset: this machine's."
)
TAG_OPTIONS: tuple[Option[Any], ...] = (
    CREATION,
    PERIOD,
    DURATION,
    DELAY,
    FORMATTER,
    NUM_RETAINED,
    BATCH_NAME,
    TIME_EXPIRE,
    DEFAULT_RETAINED,
    COMPLETION,
    WATERMARK_ZONE,
    PROCESS_ZONE,
)
"""All of them."""
