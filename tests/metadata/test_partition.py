from __future__ import annotations

import datetime as dt
import struct
from typing import Any

import pytest
from long import exhaustive

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.metadata.paths import (
    ManifestNames,
    TablePaths,
    are_file_names,
    check_file_names,
    data_file_name,
    is_file_name,
    is_scan_log,
    parse_hint,
    parse_id,
    partition_path,
    render_value,
    scan_log_name,
)
from bitlake.types import AtomicType, DataField, Root, parse_type
from bitlake.types.casts import java_float

MINUTE = 1704164640000000  # 2024-01-02 03:04:00 in µs


def path_of(made: str, value: Any, *, legacy: bool = True) -> str:
    return partition_path([DataField(0, "k", parse_type(made))], [value], legacy=legacy)


# What Paimon named its folders: table-format spec, section 1.
@pytest.mark.parametrize(
    ("made", "value", "legacy", "plain"),
    [
        ("DATE", 19782, "19782", "2024-02-29"),
        ("DATE", -1, "-1", "1969-12-31"),
        ("TIMESTAMP(6)", MINUTE, "2024-01-02T03%3A04", "2024-01-02 03%3A04%3A00.000000"),
        ("TIMESTAMP(6)", MINUTE + 5_678_000, "2024-01-02T03%3A04%3A05.678", "2024-01-02 03%3A04%3A05.678000"),
        ("TIMESTAMP(9)", -1, "1969-12-31T23%3A59%3A59.999999999", "1969-12-31 23%3A59%3A59.999999999"),
        ("TIMESTAMP(0)", MINUTE // 1000 + 1000, "2024-01-02T03%3A04%3A01", "2024-01-02 03%3A04%3A01"),
        ("DOUBLE", 1e10, "1.0E10", "1.0E10"),
        ("DECIMAL(10, 3)", 1500, "1.500", "1.500"),
        ("DECIMAL(10, 3)", -5, "-0.005", "-0.005"),
        ("BOOLEAN", True, "true", "true"),
        ("STRING", "a/b=c", "a%2Fb%3Dc", "a%2Fb%3Dc"),
        ("STRING", 'x y:%"#?é中^', "x y%3A%25%22%23%3Fé中%5E", "x y%3A%25%22%23%3Fé中%5E"),
        ("STRING", " ", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
        ("STRING", None, "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
        ("STRING", "\u00a0", "\u00a0", "\u00a0"),
        ("STRING", "\u2003\t", "__DEFAULT_PARTITION__", "__DEFAULT_PARTITION__"),
        ("BYTES", b"\xf0W\xed\xb1", "\ufffdW\ufffd", "\ufffdW\ufffd"),
        ("TIME(3)", 3723004, "3723004", "01%3A02%3A03.004"),
        ("TIME(3)", 30371000, "30371000", "08%3A26%3A11.0"),
    ],
)
def test_rendering(made: str, value: Any, legacy: str, plain: str) -> None:
    assert path_of(made, value) == f"k={legacy}"
    assert path_of(made, value, legacy=False) == f"k={plain}"


def test_java_floats() -> None:
    assert [java_float(v) for v in (123456.789, 0.1, 1e-10, 0.0, -0.0, 0.001, 9999999.0, 1e7, -2.5e-4, 100.0)] == [
        "123456.789", "0.1", "1.0E-10", "0.0", "-0.0", "0.001", "9999999.0", "1.0E7", "-2.5E-4", "100.0",
    ]  # fmt: skip
    assert [java_float(v) for v in (float("nan"), float("inf"), float("-inf"))] == ["NaN", "Infinity", "-Infinity"]
    assert java_float(0.1, single=True) == "0.1"


def test_two_keys_and_none() -> None:
    fields = [DataField(0, "a b", parse_type("INT")), DataField(1, "c=d", parse_type("STRING"))]
    assert partition_path(fields, [1, None], default_name="none") == "a b=1/c%3Dd=none"
    assert partition_path([], []) == ""


def test_paths() -> None:
    paths = TablePaths("file:/w/db.db/t/")
    assert paths.data_file("k=1", 3, "x") == "file:/w/db.db/t/k=1/bucket-3/x"
    assert paths.bucket_dir("", -2) == "file:/w/db.db/t/bucket-postpone"
    assert paths.snapshot(7) == "file:/w/db.db/t/snapshot/snapshot-7"
    assert TablePaths("/t", "b1").schema(0) == "/t/branch/branch-b1/schema/schema-0"
    assert TablePaths("/t", "main").schema(0) == "/t/schema/schema-0"
    assert TablePaths("/t").bucket_dir("k=1", 0, "d/e") == "/t/d/e/k=1/bucket-0"
    assert [parse_id(n, "snapshot-") for n in ("snapshot-12", "snapshot-x", "LATEST", "snapshot-")] == [
        12,
        None,
        None,
        None,
    ]
    assert [parse_hint(b) for b in (b"12", b" 3\n", b"", b"x", b"-1", b"9" * 40)] == [12, 3, None, None, None, None]
    names = ManifestNames()
    assert [names.manifest(), names.manifest(), names.manifest_list()] == [
        f"manifest-{names.uuid}-0",
        f"manifest-{names.uuid}-1",
        f"manifest-list-{names.uuid}-0",
    ]
    assert data_file_name("data-", "u", 2, "parquet", "lz4") == "data-u-2.lz4.parquet"


@pytest.mark.parametrize("step", [7, exhaustive(1)])
def test_dates_of_all_years(step: int) -> None:
    """A day is rendered as the calendar has it: the ends of February and of the year of every year, and far years."""
    for year in range(1, 10000, step):
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31)):
            date = dt.date(year, month, day)
            for days in (date.toordinal(), date.toordinal() + (month == 2)):
                number = days - dt.date(1970, 1, 1).toordinal()
                assert path_of("DATE", number, legacy=False) == f"k={dt.date.fromordinal(days).isoformat()}"
    assert path_of("DATE", -719528, legacy=False) == "k=0000-01-01"
    assert path_of("DATE", -719529, legacy=False) == "k=-0001-12-31"
    assert path_of("DATE", 2932897, legacy=False) == "k=%2B10000-01-01".replace("%2B", "+")
    for era in (-3, 2, 7):  # the calendar repeats every 400 years, leap day of the last year included
        for day in (0, 59, 60, 146096):
            year, rest = path_of("DATE", -719528 + day, legacy=False)[2:].split("-", 1)
            full = int(year) + 400 * era
            sign = "-" if full < 0 else "+" if full > 9999 else ""
            moved = path_of("DATE", -719528 + day + 146097 * era, legacy=False)
            assert moved == f"k={sign}{abs(full):04d}-{rest}"


def test_each_day_of_leap_years_and_others() -> None:
    for year in (1, 1899, 1900, 1969, 1999, 2000, 2001, 2004, 2100, 9999):
        for day in range(dt.date(year, 1, 1).toordinal(), dt.date(year, 12, 31).toordinal() + 1):
            date = dt.date.fromordinal(day)
            assert path_of("DATE", day - EPOCH.toordinal(), legacy=False) == f"k={date.isoformat()}"


EPOCH = dt.date(1970, 1, 1)


@pytest.mark.parametrize("precision", range(10))
def test_timestamps_of_each_precision(precision: int) -> None:
    """As Java's ``LocalDateTime`` prints itself, or with as many digits as the type has."""
    units = 10**3 if precision <= 3 else 10**6 if precision <= 6 else 10**9
    parts = {0, 1, 10, 120, units // 1000, units // 1000 * 5, units // 10, units // 2, units - 1, units - units // 1000}
    for seconds in (0, 1, 59, 60, 61, 3599, 3600, 86_399, 86_400, 59 * 86_400 + 300, -1, -60, -86_400, 10**9):
        for part in parts:
            whole, nanos = divmod((seconds * units + part) * (10**9 // units), 10**9)
            at = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=whole)
            clock = f"{at:%H:%M}" if at.second == nanos == 0 else f"{at:%H:%M:%S}"
            if nanos:
                digits = 3 if nanos % 10**6 == 0 else 6 if nanos % 1000 == 0 else 9
                clock += f".{nanos:09d}"[: digits + 1]
            plain = f"{at:%Y-%m-%d %H:%M:%S}" + f".{nanos:09d}"[: precision + 1 if precision else 0]
            made = f"TIMESTAMP({precision})"
            assert path_of(made, seconds * units + part) == f"k={at:%Y-%m-%d}T{clock}".replace(":", "%3A")
            assert path_of(made, seconds * units + part, legacy=False) == f"k={plain}".replace(":", "%3A")
    kinds = [AtomicType(Root.TIMESTAMP, precision=p) for p in (None, 6)]
    assert len({render_value(kind, 5, legacy=False) for kind in kinds}) == 1, "six digits, if none are named"


@pytest.mark.parametrize(("precision", "text"), [(0, "01:02:03"), (1, "01:02:03.0"), (3, "01:02:03.045")])
def test_times_of_each_precision(precision: int, text: str) -> None:
    assert render_value(parse_type(f"TIME({precision})"), 3_723_045, legacy=False) == text
    assert render_value(parse_type(f"TIME({precision})"), 3_723_045) == "3723045"


def test_decimals_of_each_scale() -> None:
    for scale, texts in (
        (0, ("0", "-7", "12345")),
        (1, ("0.0", "-0.7", "1234.5")),
        (5, ("0.00000", "-0.00007", "0.12345")),
    ):
        made = parse_type(f"DECIMAL(18, {scale})")
        assert tuple(render_value(made, v) for v in (0, -7, 12345)) == texts


def test_names_of_many_files() -> None:
    some = ["", ".", "..", "a", "ab", "abc", "...", "a/b", "abc\\d", "abc\0", "..a"]
    for first in some:
        assert are_file_names([first]) is is_file_name(first)
        for second in some:
            assert are_file_names(["data", first, second]) is (is_file_name(first) and is_file_name(second))
    assert are_file_names([])
    with pytest.raises(CorruptError, match=r"invalid name '..' of a manifest"):
        check_file_names(["data-1", "..", "a/b"], "manifest")


def test_numbers_in_names_and_hints() -> None:
    """Up to 19 digits, as a LONG of Java has; a hint may have blanks around it within its first 32 bytes."""
    assert parse_id("snapshot-" + "9" * 19, "snapshot-") == 10**19 - 1
    assert parse_id("snapshot-" + "9" * 20, "snapshot-") is None and parse_id("snapshot-\u0663", "snapshot-") is None
    assert parse_id("tag-1", "snapshot-") is None
    assert parse_hint(b"9" * 19) == 10**19 - 1 and parse_hint(b"1" * 20) is None
    assert parse_hint(b" " * 31 + b"7") == 7 and parse_hint(b" " * 32 + b"7") is None
    name = scan_log_name(1_700_000_000_000)
    assert is_scan_log(name) and name.startswith("scan-log-1700000000000-")
    assert is_scan_log(scan_log_name(5)) and not is_scan_log("scan-log-5.jsonl")
    assert data_file_name("p-", "u", 0, "orc") == "p-u-0.orc"
    with pytest.raises(InvalidRequest, match="change the option"):
        data_file_name("p/", "u", 0, "orc")


def test_single_floats_have_fewer_digits() -> None:
    third = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert (path_of("FLOAT", third), path_of("DOUBLE", third)) == ("k=0.1", "k=0.10000000149011612")
