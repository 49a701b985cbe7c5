"""Dates and wall clocks of whole columns: civil dates from days, and instants as a zone's clocks show them.

Dates are proleptic Gregorian, as in Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.expressions.terms import mask_of
from bitlake.types import time_zone
from bitlake.types.datatypes import Root
from bitlake.types.time_zone import MICROS_PER_DAY

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

# --- civil dates ------------------------------------------------------------------------------------------------------


def civil(days: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Year, month and day of days since 1970-01-01, of any size."""
    shifted = days + 719_468  # days since 0000-03-01
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + np.where(shifted_month < 10, 3, -9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_from_civil(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01 of dates; the inverse of :func:`civil`."""
    shifted_year = year - (month <= 2)
    era = shifted_year // 400
    year_of_era = shifted_year - era * 400
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year - 719_468


def month_length(year: Int64s, month: Int64s) -> Int64s:
    """The number of days of months."""
    following = month % 12 + 1
    days: Int64s = days_from_civil(year + (month == 12), following, 1) - days_from_civil(year, month, 1)
    return days


# --- columns ----------------------------------------------------------------------------------------------------------


def raw(array: pa.Array) -> Int64s:
    """Days or microseconds of a DATE or timestamp array; 0 where NULL."""
    width = pa.int32() if array.type.bit_width == 32 else pa.int64()
    plain = array.view(width)
    numbers: Int64s = (plain.fill_null(0) if plain.null_count else plain).to_numpy().astype(np.int64)
    return numbers


def dates(days: Int64s, like: pa.Array, what: str) -> pa.Array:
    """A DATE array of days, NULL where ``like`` is."""
    if len(days) and (int(days.min()) < -(1 << 31) or int(days.max()) >= 1 << 31):
        raise EvaluationFailed(f"{what}: the date is out of range in some row")
    return pa.array(days.astype(np.int32), pa.int32(), mask=mask_of(like)).view(pa.date32())


def wall_micros(array: pa.Array, root: Root, zone: str) -> Int64s:
    """Microseconds of the wall clock: of TIMESTAMP as it is, of TIMESTAMP_LTZ in a zone."""
    values = raw(array)
    if root is not Root.TIMESTAMP_LTZ or not len(values):
        return values
    if time_zone.is_fixed(zone) and not time_zone.fixed_offset(zone):
        return values
    offsets = time_zone.offsets_of_instants(zone, values)
    moved: Int64s = values + offsets
    if np.any((moved < values) != (offsets < 0)):
        raise EvaluationFailed("a timestamp is out of range in some row")
    return moved


def days_of(array: pa.Array, root: Root, zone: str) -> pa.Array:
    """The DATE of timestamps, by the wall clock."""
    return dates(wall_micros(array, root, zone) // MICROS_PER_DAY, array, "CAST AS DATE")
