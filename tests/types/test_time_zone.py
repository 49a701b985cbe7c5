"""Names of zones as Spark reads them; offsets, wall clocks and dates of columns, against :mod:`zoneinfo` and numpy."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from long import exhaustive, long

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.types import Root
from bitlake.types.time_zone import (
    at_zone,
    civil,
    date_array,
    days_from_civil,
    micros_of,
    month_length,
    offsets_of_clocks,
    offsets_of_instants,
    steady_offset,
    wall_micros,
    zone,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)
INT, LONG = np.iinfo(np.int32), np.iinfo(np.int64)


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
    "year",
    [
        1,
        exhaustive(1700),
        exhaustive(1883),
        1918,
        exhaustive(1945),
        2024,
        exhaustive(2037),
        2038,
        exhaustive(2087),
        exhaustive(2100),
        2399,
        exhaustive(2400),
        2799,
        exhaustive(2800),
        exhaustive(5000),
        9999,
    ],
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


def test_the_calendar_is_numpy_s() -> None:
    """Each day of five cycles of 400 years around 1970, and days as far away as a DATE can be."""
    near = np.arange(-365_243, 365_243)
    far = np.random.default_rng(1).integers(INT.min, INT.max, 50_000)
    days = np.concatenate([near, far, [INT.min, INT.max]])
    stamps = days.astype("M8[D]")
    months = stamps.astype("M8[M]")
    years = months.astype("M8[Y]")
    year, month, day = civil(days)
    assert np.array_equal(year, years.astype(np.int64) + 1970)
    assert np.array_equal(month, (months - years).astype(np.int64) + 1)
    assert np.array_equal(day, (stamps - months).astype(np.int64) + 1)
    assert np.array_equal(days_from_civil(year, month, day), days)
    lengths = ((months + np.timedelta64(1, "M")).astype("M8[D]") - months.astype("M8[D]")).astype(np.int64)
    assert np.array_equal(month_length(year, month), lengths)


def instants(*values: int | None) -> pa.Array:
    """Microseconds as instants."""
    return pa.array(values, pa.int64()).view(pa.timestamp("us", "UTC"))


def shown(instant: int, zone: str) -> int:
    """What the clocks of a zone show, by :mod:`zoneinfo`."""
    wall = (EPOCH + instant * MICRO).astimezone(zoneinfo.ZoneInfo(zone))
    return (wall.replace(tzinfo=dt.UTC) - EPOCH) // MICRO


CHANGES = [
    ("Europe/Berlin", "1893-03-31"),
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2029-10-28"),
    ("Europe/London", "2026-10-25"),
    ("America/New_York", "1883-11-18"),
    ("America/New_York", "2077-03-14"),
    ("America/Lima", "1990-01-01"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Fiji", "2020-01-11"),
    ("Africa/Freetown", "1939-09-01"),
    ("Africa/Freetown", "1939-09-05"),
    ("Asia/Tokyo", "1951-09-08"),
]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_clocks_show_what_they_show_of_single_timestamps(zone: str, day: str) -> None:
    """Each half hour of the days around a change, alone and in one column with the others."""
    noon = (dt.datetime.fromisoformat(f"{day}T12:00Z") - EPOCH) // MICRO
    around = [noon + i * 1_800_000_000 + j for i in range(-72, 73) for j in (-1, 0, 1)]
    expected = [shown(i, zone) for i in around]
    assert wall_micros(instants(*around), Root.TIMESTAMP_LTZ, zone).tolist() == expected
    for instant, wall in zip(around[::16], expected[::16], strict=True):
        assert wall_micros(instants(instant), Root.TIMESTAMP_LTZ, zone).tolist() == [wall]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", long("America/New_York")])
def test_a_column_of_all_centuries(zone: str) -> None:
    first, last = dt.datetime(1, 1, 3, tzinfo=dt.UTC), dt.datetime(9999, 12, 30, 23, 59, 59, 999999, dt.UTC)
    for middle in (1700, 1839, 1840, 1844, 1890, 1945, 1969, 1970, 2019, 2020, 2100):
        wanted = [(dt.datetime(middle, 7, 1, tzinfo=dt.UTC) - EPOCH) // MICRO, (first - EPOCH) // MICRO]
        assert wall_micros(instants(*wanted), Root.TIMESTAMP_LTZ, zone).tolist() == [shown(i, zone) for i in wanted]
    before_christ = -(10**17)
    solar_time = shown(wanted[1], zone) - wanted[1]
    assert wall_micros(instants(before_christ), Root.TIMESTAMP_LTZ, zone).tolist() == [before_christ + solar_time]
    end = (last - EPOCH) // MICRO
    assert wall_micros(instants(end, None), Root.TIMESTAMP_LTZ, zone)[0] == shown(end, zone)


@pytest.mark.parametrize(("zone", "seconds"), [("+05:30", 19_800), ("-18:00", -64_800), ("UTC", 0)])
def test_clocks_end_where_eight_bytes_do(zone: str, seconds: int) -> None:
    ends = (int(LONG.min), int(LONG.max))
    for end in ends:
        wall = end + seconds * 1_000_000
        if ends[0] <= wall <= ends[1]:
            assert wall_micros(instants(end, 0, None), Root.TIMESTAMP_LTZ, zone)[0] == wall
        else:
            with pytest.raises(EvaluationFailed, match="out of range"):
                wall_micros(instants(0, end, None), Root.TIMESTAMP_LTZ, zone)
    assert wall_micros(instants(*ends), Root.TIMESTAMP, zone).tolist() == list(ends)
    assert wall_micros(instants(), Root.TIMESTAMP_LTZ, zone).tolist() == []


def test_dates_end_where_four_bytes_do() -> None:
    like = pa.array([1, None, 1])
    made = date_array(np.array([INT.min, 0, INT.max], np.int64), like, "x")
    assert made.view(pa.int32()).to_pylist() == [INT.min, None, INT.max]
    for beyond in (int(INT.min) - 1, int(INT.max) + 1):
        with pytest.raises(EvaluationFailed, match="x: the date is out of range"):
            date_array(np.array([0, 0, beyond], np.int64), like, "x")
