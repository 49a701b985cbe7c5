"""Options of tags that are made by the period, which ``CALL sys.trigger_tag_automatic_creation`` goes by.

Source: Paimon's ``tag.*`` options.  Its streaming writers make such tags after each commit; bitlake's writers never do.
"""

from __future__ import annotations

from typing import Any

from bitlake.metadata.optiontypes import Option, at_least, parse_bool, parse_duration_ms, words

_DURATION = "a duration such as '10 min' or '1 d'"
_ZONE = "the name of a time zone, such as 'Europe/Berlin' or 'UTC+02:00'"

CREATION = Option(
    "tag.automatic-creation",
    words("none", "process-time", "watermark"),
    "none",
    "one of none, process-time, watermark ('batch', a tag for each commit, is not implemented)",
    "Which time of a snapshot says of which period it is.",
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
    "tag.num-retained-max", at_least(1), None, "a whole number ≥ 1", "How many tags of periods there may be."
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
    DEFAULT_RETAINED,
    COMPLETION,
    WATERMARK_ZONE,
    PROCESS_ZONE,
)
"""All of them."""
