"""The rules of a time zone in Spark's JVM, which has time zone data of its own."""

from __future__ import annotations

import datetime as dt
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bitlake.codec.hashing import Int64s
from bitlake.types import time_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bitlake.types.time_zone import Offsets

_BEFORE_ALL = -(1 << 40)
"""Seconds since 1970: long before the first change of any zone."""
_TRANSITION = re.compile(r"at (\d{4}-\d\d-\d\dT[\d:]+)(Z|[+-][\d:]+) to (Z|[+-][\d:]+)\]")
"""As ``ZoneOffsetTransition`` writes itself: ``Transition[Gap at 2007-03-11T02:00-08:00 to -07:00]``."""


def differs_from_java(spark: SparkSession, zone: str) -> bool:
    """Return whether Java has other rules for a zone than this process, or only Java knows it."""
    if time_zone.find_zone(zone) is None:
        return True
    ours = partial(time_zone.offsets_of_instants, zone)
    return not time_zone.is_fixed(zone) and time_zone.rules_differ(ours, java_offsets(spark, zone))


def java_offsets(spark: SparkSession, zone: str) -> Offsets:
    """Return a function for the offsets of instants, in microseconds, of the years of ``RULE_YEARS``.

    Java returns its rules as text, in one call for all changes that are listed and one for each year of a rule.
    """
    jvm: Any = spark._jvm
    zones = jvm.java.time.ZoneId
    rules = zones.of(getattr(time_zone.zone(zone), "key", zone), zones.SHORT_IDS).getRules()
    texts = [rules.getTransitions().toString()]
    listed = _TRANSITION.findall(texts[0])
    first, last = time_zone.RULE_YEARS
    since = max(first, int(listed[-1][0][:4]) + 1 if listed else first)
    texts += [r.createTransition(year).toString() for r in rules.getTransitionRules() for year in range(since, last)]
    changes = sorted(
        (_instant(*found[:2]), _seconds(found[2])) for text in texts for found in _TRANSITION.findall(text)
    )
    earliest = rules.getOffset(jvm.java.time.Instant.ofEpochSecond(_BEFORE_ALL)).getTotalSeconds()
    instants = np.array([at for at, _ in changes], np.int64) * 1_000_000
    offsets = np.array([earliest, *(after for _, after in changes)], np.int64) * 1_000_000

    def offsets_at(asked: Int64s) -> Int64s:
        return offsets[np.searchsorted(instants, asked, "right")]

    return offsets_at


def _instant(clock: str, offset: str) -> int:
    wall = dt.datetime.fromisoformat(clock)
    return (wall - time_zone.EPOCH) // dt.timedelta(seconds=1) - _seconds(offset)


def _seconds(offset: str) -> int:
    """An offset such as ``-07:52:58`` in seconds."""
    if offset == "Z":
        return 0
    hours, minutes, *seconds = (int(part) for part in offset[1:].split(":"))
    total = 3600 * hours + 60 * minutes + sum(seconds)
    return -total if offset[0] == "-" else total
