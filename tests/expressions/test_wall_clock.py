"""Calendars and clocks of whole columns, against numpy's calendar and :mod:`zoneinfo`."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from long import long

from bitlake.errors import EvaluationFailed
from bitlake.expressions.wall_clock import civil, dates, days_from_civil, month_length, wall_micros
from bitlake.types import Root

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)
INT, LONG = np.iinfo(np.int32), np.iinfo(np.int64)


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
    made = dates(np.array([INT.min, 0, INT.max], np.int64), like, "x")
    assert made.view(pa.int32()).to_pylist() == [INT.min, None, INT.max]
    for beyond in (int(INT.min) - 1, int(INT.max) + 1):
        with pytest.raises(EvaluationFailed, match="x: the date is out of range"):
            dates(np.array([0, 0, beyond], np.int64), like, "x")
