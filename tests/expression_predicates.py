"""Random rows and predicates that contain expressions which are indexed."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bitlake.expressions.sql_text import quote

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("n", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us")),
        ("seen", pa.timestamp("us", "UTC")),
        ("addr", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("m", pa.map_(pa.string(), pa.string())),
        ("payload", pa.string()),
        ("digits", pa.string()),
    ]
)
INDEXES = {
    "bitlake.index.by_email": "bitmap(lower(email))",
    "bitlake.index.by_length": "range-bitmap(length(email))",
    "bitlake.index.by_prefix": "bloom-filter(substring(email, 1, 2))",
    "bitlake.index.by_double": "bsi(n * 2)",
    "bitlake.index.by_bucket": "bitmap(n % 7)",
    "bitlake.index.by_price": "bsi(price + 1)",
    "bitlake.index.by_year": "bitmap(year(ts))",
    "bitlake.index.by_hour": "range-bitmap(hour(seen))",
    "bitlake.index.by_hour.timezone": "Europe/Berlin",
    "bitlake.index.by_city": "bitmap(addr.city)",
    "bitlake.index.by_key": "bitmap(upper(m['k']))",
    "bitlake.index.by_user": "bitmap(get_json_object(payload, '$.user.id'))",
    "bitlake.index.by_hash": "bitmap(pmod(hash(email), 8))",
    "bitlake.index.by_hashes": "bsi(hash(n, price) % 5)",
}
WORDS = [
    "",
    "a",
    "A",
    "Ab",
    "aB",
    "ß",
    "SS",
    "Straße",
    "ÉCOLE",
    "école",
    "Σίσυφος",
    "日本",
    "😀a",
    "i̇",
    "İ",
    "a b",
    "O'x",
    "%_",
    "e\u0301",
    "a\\b\n",
    " \t",
    "👩\u200d💻",
]
ASCII = [word for word in WORDS if word.isascii()]
CITIES = ["Ulm", "ulm", "Köln", None]
PAYLOADS = [
    '{"user": {"id": "a"}}',
    '{"user": {"name": "a", "id": 7}, "user": {"id": 8}}',
    '{"user": {"id": null}, "user": {"id": "b\\u00e9\\n"}} trailing',
    '{"user": {"id": true}}',
    '{"user": []}',
    '{"user": {"id": "a"}',
    "not json",
    "",
]
START = dt.datetime(2024, 12, 30, 22)


def rows(draw: random.Random, first: int, count: int, words: Sequence[str] = WORDS) -> pa.Table:
    """Random rows; ``words`` are those that their texts begin with."""

    def some(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    def row(i: int) -> dict[str, Any]:
        moment = START + dt.timedelta(minutes=draw.randrange(60 * 24 * 4))
        return {
            "id": i,
            "email": some(draw.choice(words) + draw.choice(("", "@x", "@X"))),
            "n": some(draw.randrange(-20, 20)),
            "price": some(draw.randrange(-500, 500)),
            "ts": some(moment),
            "seen": some(moment.replace(tzinfo=dt.UTC)),
            "addr": some({"city": draw.choice(CITIES), "zip": some(draw.randrange(3))}),
            "m": some([("k", some(draw.choice(words)))] if draw.random() < 0.7 else [("other", "a")]),
            "payload": some(_payload(draw, words)),
            "digits": some(draw.choice((str(draw.randrange(-3, 30)), "007", " 5 "))),
        }

    return pa.Table.from_pylist([row(i) for i in range(first, first + count)], SCHEMA)


def _payload(draw: random.Random, words: Sequence[str]) -> str:
    """JSON of a word, written with and without escapes, or one of the odd texts."""
    if draw.random() < 0.5:
        return draw.choice(PAYLOADS)
    return json.dumps({"x": [{"id": 1}], "user": {"id": draw.choice(words)}}, ensure_ascii=draw.random() < 0.5)


def leaf(draw: random.Random) -> str:
    text = draw.choice(WORDS)
    number = draw.randrange(-42, 42)
    op = draw.choice(("=", "<>", "<", "<=", ">", ">="))
    return draw.choice(
        (
            f"lower(email) {op} {quote(text.lower())}",
            f"lower(email) IN ({quote(text.lower() + '@x')}, 'a', 'école')",
            f"lower(email) LIKE '{draw.choice(('a%', '%x', '%b%', '_@x', 's%'))}'",
            "lower(email) IS NULL",
            f"length(email) {op} {number % 7}",
            f"length(email) BETWEEN 1 AND {number % 5}",
            f"substring(email, 1, 2) = {quote(text[:2])}",
            f"n * 2 {op} {number}",
            f"n % 7 {op} {number % 9}",
            f"price + 1 {op} {number / 4}",
            f"year(ts) {op} {draw.choice((2024, 2025, 2026))}",
            f"hour(seen) {op} {number % 25}",
            f"addr.city = '{draw.choice(('Ulm', 'Köln', 'x'))}'",
            "addr.city IS NOT NULL",
            f"upper(m['k']) {op} {quote(text.upper())}",
            f"n {op} {number}",
            f"get_json_object(payload, '$.user.id') {op} '{draw.choice(('a', '7', 'bé', 'true', 'x'))}'",
            "get_json_object(payload, '$.user.id') IS NULL",
            "get_json_object(payload, '$.user.id') LIKE 'b%'",
            f"pmod(hash(email), 8) {op} {number % 9}",
            f"hash(n, price) % 5 {op} {number % 6 - 3}",
        )
    )


def predicate(draw: random.Random, depth: int = 2) -> str:
    if depth == 0 or draw.random() < 0.4:
        return leaf(draw) if draw.random() < 0.8 else f"NOT ({leaf(draw)})"
    joined = draw.choice((" AND ", " OR ")).join(predicate(draw, depth - 1) for _ in range(2))
    return f"({joined})" if draw.random() < 0.8 else f"NOT ({joined})"


# --- every function --------------------------------------------------------------------------------------------------

_TEXT, _ANY = ("bitmap", "bloom-filter", "range-bitmap"), ("bitmap", "bloom-filter", "range-bitmap", "bsi")
_EQUAL = ("bitmap",)
_SEARCHED = (*_TEXT, "ngram", "tokens")
Constants = Callable[[random.Random], str]


def _texts(*of: str) -> Constants:
    return lambda draw: quote(draw.choice(of))


def _integers(first: int, last: int) -> Constants:
    return lambda draw: str(draw.randint(first, last))


def _dates(draw: random.Random) -> str:
    return f"DATE '{(START + dt.timedelta(days=draw.randint(-40, 40))).date()}'"


def _hours(draw: random.Random) -> str:
    return f"TIMESTAMP '{START + dt.timedelta(hours=draw.randint(-3, 99), minutes=draw.choice((0, 0, 30)))}'"


def _spelled(change: Callable[[str], str], *more: str) -> Constants:
    return _texts(*dict.fromkeys(change(w + tail) for w in WORDS for tail in ("", "@x", "@X")), *more)


EVERY: dict[str, tuple[Constants, tuple[str, ...]]] = {
    "lower(email)": (_spelled(str.lower), _SEARCHED),
    "upper(email)": (_spelled(str.upper), _SEARCHED),
    "trim(email)": (_spelled(lambda t: t.strip(" ")), _SEARCHED),
    "ltrim(email)": (_spelled(lambda t: t.lstrip(" ")), _TEXT),
    "rtrim(email)": (_spelled(lambda t: t.rstrip(" ")), _TEXT),
    "substring(email, 2, 3)": (_spelled(lambda t: t[1:4]), _TEXT),
    "substring(email, -2)": (_spelled(lambda t: t[-2:]), _TEXT),
    "left(email, 2)": (_spelled(lambda t: t[:2]), _TEXT),
    "right(email, 1)": (_spelled(lambda t: t[-1:]), _TEXT),
    "replace(email, 'a', 'ü')": (_spelled(lambda t: t.replace("a", "ü")), _SEARCHED),
    "concat(email, '|', addr.city)": (_spelled(lambda t: t + "|Ulm", "a|Köln"), _SEARCHED),
    "coalesce(email, 'none')": (_spelled(str, "none"), _TEXT),
    "greatest(email, addr.city)": (_spelled(str, "Ulm", "ulm", "Köln"), _TEXT),
    "lower(trim(addr.city))": (_texts("ulm", "köln", "x"), _TEXT),
    "addr.city": (_texts("Ulm", "ulm", "Köln", "x"), _SEARCHED),
    "m['k']": (_spelled(str), _TEXT),
    "upper(m['k'])": (_spelled(str.upper), _TEXT),
    "get_json_object(payload, '$.user.id')": (_spelled(str, "a", "7", "8", "true", "bé\n"), _SEARCHED),
    "CAST(n AS STRING)": (_texts("1", "-1", "19", "20", "01"), _TEXT),
    "length(email)": (_integers(0, 10), _ANY),
    "octet_length(email)": (_integers(0, 16), _ANY),
    "instr(email, 'x')": (_integers(0, 8), _ANY),
    "n + 1": (_integers(-20, 21), _ANY),
    "n - addr.zip": (_integers(-22, 20), _ANY),
    "n div 3": (_integers(-7, 7), _ANY),
    "n % 7": (_integers(-7, 7), _ANY),
    "(-n)": (_integers(-20, 21), _ANY),
    "abs(n)": (_integers(0, 21), _ANY),
    "pmod(n, 5)": (_integers(0, 5), _ANY),
    "pmod(hash(email), 8)": (_integers(0, 8), _ANY),
    "hash(n, addr.city) % 5": (_integers(-4, 4), _ANY),
    "least(n, addr.zip)": (_integers(-20, 3), _ANY),
    "addr.zip": (_integers(0, 3), _ANY),
    "CAST(digits AS INT)": (_integers(-3, 30), _ANY),
    "CAST(price AS INT)": (_integers(-6, 6), _ANY),
    "year(ts)": (_integers(2024, 2025), _ANY),
    "quarter(ts)": (_integers(0, 5), _ANY),
    "month(ts)": (_integers(0, 13), _ANY),
    "day(ts)": (_integers(1, 31), _ANY),
    "dayofyear(ts)": (_integers(1, 366), _ANY),
    "dayofweek(ts)": (_integers(1, 7), _ANY),
    "weekday(ts)": (_integers(0, 6), _ANY),
    "weekofyear(ts)": (_integers(1, 53), _ANY),
    "hour(ts)": (_integers(0, 24), _ANY),
    "minute(ts)": (_integers(0, 60), _ANY),
    "second(ts)": (_integers(0, 1), _ANY),
    "hour(seen)": (_integers(0, 24), _ANY),
    "year(seen)": (_integers(2024, 2025), _ANY),
    "datediff(CAST(ts AS DATE), DATE '2025-01-01')": (_integers(-3, 3), _ANY),
    "price + 1": (lambda draw: str(draw.randrange(-20, 24) / 4), _ANY[2:]),
    "price * 2": (lambda draw: str(draw.randrange(-50, 50) / 5), _ANY[2:]),
    "n / 4": (lambda draw: f"{draw.randrange(-20, 20) / 4}D", ("bloom-filter", "range-bitmap")),
    "sign(n)": (lambda draw: draw.choice(("-1.0D", "0.0D", "1.0D")), ("bloom-filter", "range-bitmap")),
    "CAST(ts AS DATE)": (_dates, _ANY),
    "CAST(seen AS DATE)": (_dates, _ANY),
    "date_add(CAST(ts AS DATE), 1)": (_dates, _ANY),
    "date_sub(CAST(ts AS DATE), 31)": (_dates, _ANY),
    "last_day(ts)": (_dates, _ANY),
    "add_months(ts, 1)": (_dates, _ANY),
    "trunc(ts, 'MM')": (_dates, _ANY),
    "date_trunc('HOUR', seen)": (_hours, _ANY),
    "has_token(email, 'a')": (lambda draw: draw.choice(("true", "false")), _EQUAL),
    "has_any_token(email, array('b', 'école'))": (lambda draw: draw.choice(("true", "false")), _EQUAL),
    "(email RLIKE '^[aé]')": (lambda draw: draw.choice(("true", "false")), _EQUAL),
}
"""An expression of each function that an index may have: constants to compare it with, and index types that take it."""
ZONED = ("seen",)
_PATTERNS = ("a%", "%x", "%b%", "_@x", "s%", "%cole%", "%tra_e%", "% b%", "%日%", "%\\_", "")


def some_indexes(draw: random.Random, zone: str, count: int) -> tuple[dict[str, str], list[str]]:
    """Options that declare indexes of random expressions, and these; ``date_trunc`` needs a zone without changes."""
    chosen = draw.sample([e for e in EVERY if zone == "UTC" or not e.startswith("date_trunc")], count)
    options = {}
    for i, expression in enumerate(chosen):
        options[f"bitlake.index.i{i}"] = f"{draw.choice(EVERY[expression][1])}({expression})"
        if any(column in expression for column in ZONED):
            options[f"bitlake.index.i{i}.timezone"] = zone
    return options, chosen


def comparison(draw: random.Random, expression: str) -> str:
    """A test of an expression's value: a comparison, IN, BETWEEN, a test for NULL, or LIKE of a text."""
    constants, kinds = EVERY[expression]
    first, second = constants(draw), constants(draw)
    op = draw.choice(("=", "=", "<>", "<", "<=", ">", ">=", "<=>"))
    tests = [
        *(f"{expression} {op} {first}",) * 3,
        f"{expression} {draw.choice(('IN', 'NOT IN'))} ({first}, {second})",
        f"{expression} BETWEEN {first} AND {second}",
        f"{expression} IS {draw.choice(('NULL', 'NOT NULL'))}",
    ]
    if set(_TEXT) <= set(kinds) and kinds is not _ANY:
        pattern = quote(draw.choice(_PATTERNS))
        tests += [f"{expression} {draw.choice(('LIKE', 'NOT LIKE', 'ILIKE'))} {pattern}"]
        tests += [f"contains({expression}, {first})", f"startswith({expression}, {first})"]
    return draw.choice(tests)


def predicate_of(draw: random.Random, expressions: list[str], depth: int = 2) -> str:
    """AND, OR and NOT of tests of these expressions."""
    if depth == 0 or draw.random() < 0.4:
        test = comparison(draw, draw.choice(expressions))
        return test if draw.random() < 0.8 else f"NOT ({test})"
    joined = draw.choice((" AND ", " OR ")).join(predicate_of(draw, expressions, depth - 1) for _ in range(2))
    return f"({joined})" if draw.random() < 0.8 else f"NOT ({joined})"
