"""Names of time zones as Spark reads them, and offsets of columns against :mod:`zoneinfo`."""

from __future__ import annotations

import datetime as dt
import re

import numpy as np
import pytest

from bitlake.errors import InvalidRequest
from bitlake.types.time_zone import at_zone, micros_of, offsets_of_clocks, offsets_of_instants, steady_offset, zone


@pytest.mark.parametrize(
    ("name", "minutes"),
    [("+5", 300), ("-5", -300), ("+05:30", 330), ("-0530", -330), ("+18:00", 1080), ("-18:00", -1080), ("Z", 0)]
    + [("GMT+8", 480), ("UTC-03:30", -210), ("UT+02", 120), ("GMT-0", 0), ("+02:30:30", 150.5), ("-023030", -150.5)]
    + [("UT", 0), ("+8:5", 485), ("-08:0", -480), ("+17:59", 1079)],
)
def test_offsets_of_time_zones(name: str, minutes: float) -> None:
    assert zone(name).utcoffset(None) == dt.timedelta(minutes=minutes)


def test_an_offset_is_steady_for_two_days_around_an_instant() -> None:
    """Clocks of Berlin change on 2026-03-29 at 01:00 UTC."""
    berlin, hour = zone("Europe/Berlin"), dt.timedelta(hours=1)
    change = dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)
    for before in (1e-6, 1, 12 * 3600, 48 * 3600):
        assert steady_offset(change - dt.timedelta(seconds=before), berlin) is None
        assert steady_offset(change + dt.timedelta(seconds=before) - dt.timedelta(seconds=1e-6), berlin) is None
    moment, two_days = dt.timedelta(microseconds=1), dt.timedelta(hours=48)
    assert steady_offset(change - two_days - moment, berlin) == hour
    assert steady_offset(change + two_days, berlin) == 2 * hour
    assert steady_offset(dt.datetime(9999, 12, 31, tzinfo=dt.UTC), berlin) == hour
    assert steady_offset(dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.UTC) == dt.timedelta()


def test_short_names_of_time_zones_are_those_of_java() -> None:
    """As ``SELECT timestamp_seconds(0)`` on Spark, where India's zone is IST, and Dhaka's BST."""
    at = dt.datetime(2024, 7, 15, 12, tzinfo=dt.UTC)
    hours = {"PST": -7, "CST": -5, "IST": 5.5, "JST": 9, "ACT": 9.5, "AET": 10, "BST": 6, "EST": -5}
    assert {name: at.astimezone(zone(name)).utcoffset() for name in hours} == {
        name: dt.timedelta(hours=h) for name, h in hours.items()
    }


@pytest.mark.parametrize(
    "name",
    ["+18:01", "-19", "+02:60", "+02:30:60", "+18:00:01", "+1:5:00", "+800", "+08:0015", "+0800:15"]
    + [
        "No/Town",
        "Europe/Nowhere",
        "+99:00",
        "UTC8",
        "",
        "utc",
        "localtime",
        "posixrules",
        "posix/UTC",
        "right/UTC",
        "z",
        "pst",
    ],
)
def test_unknown_time_zones_are_named(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"unknown time zone '{re.escape(name)}'"):
        zone(name)


ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Tokyo",
    "PST",
    "GMT+8",
    "UTC",
]
HALF_HOUR = 1_800_000_000


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize(
    "year", [1, 1700, 1883, 1918, 1945, 2024, 2037, 2038, 2087, 2100, 2399, 2400, 2799, 2800, 5000, 9999]
)
def test_clocks_and_instants_of_a_year(name: str, year: int) -> None:
    """Each half hour around the changes of the clock, and every eleven hours of the year."""
    start = micros_of(dt.datetime(year, 1, 3))
    times = np.arange(start, micros_of(dt.datetime(year, 12, 29)), 22 * HALF_HOUR)
    offsets = offsets_of_instants(name, times)
    changes = times[1:][np.diff(offsets) != 0]
    near = np.concatenate([c + HALF_HOUR * np.arange(-60, 61) for c in changes] + [times])
    tz = zone(name)
    walls = [dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(t)) for t in near]
    utc = [w.replace(tzinfo=dt.UTC) for w in walls]
    shown = [micros_of(u.astimezone(tz).replace(tzinfo=None)) for u in utc]
    assert (near + offsets_of_instants(name, near)).tolist() == shown
    instants = [micros_of(at_zone(w, tz)) for w in walls]
    assert (near - offsets_of_clocks(name, near)).tolist() == instants


def test_the_rules_of_a_zone_go_on_after_year_9999() -> None:
    """As ``SELECT date_format(timestamp_seconds(…), 'HH:mm')`` on Spark shows these instants in New York."""
    seconds = np.array(
        [
            253402318799,
            253409230799,
            253419598799,
            253430830799,
            9000000000000,
            9000007776000,
            9000015552000,
            9000023328000,
        ]
    )
    hours = offsets_of_instants("America/New_York", seconds * 1_000_000) // 3_600_000_000
    assert hours.tolist() == [-5, -4, -4, -5, -4, -5, -5, -4]
    assert offsets_of_instants("Asia/Tokyo", np.array([], np.int64)).tolist() == []
