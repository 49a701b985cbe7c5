"""Random rows and predicates that contain expressions which are indexed."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa

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
]
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


def rows(draw: random.Random, first: int, count: int) -> pa.Table:
    def some(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    def row(i: int) -> dict[str, Any]:
        moment = START + dt.timedelta(minutes=draw.randrange(60 * 24 * 4))
        return {
            "id": i,
            "email": some(draw.choice(WORDS) + draw.choice(("", "@x", "@X"))),
            "n": some(draw.randrange(-20, 20)),
            "price": some(draw.randrange(-500, 500)),
            "ts": some(moment),
            "seen": some(moment.replace(tzinfo=dt.UTC)),
            "addr": some({"city": draw.choice(CITIES), "zip": some(draw.randrange(3))}),
            "m": some([("k", some(draw.choice(WORDS)))] if draw.random() < 0.7 else [("other", "a")]),
            "payload": some(draw.choice(PAYLOADS)),
        }

    return pa.Table.from_pylist([row(i) for i in range(first, first + count)], SCHEMA)


def leaf(draw: random.Random) -> str:
    text = draw.choice(WORDS)
    word = text.replace("'", "\\'")
    number = draw.randrange(-42, 42)
    op = draw.choice(("=", "<>", "<", "<=", ">", ">="))
    return draw.choice(
        (
            f"lower(email) {op} '{word.lower()}'",
            f"lower(email) IN ('{word.lower()}@x', 'a', 'école')",
            f"lower(email) LIKE '{draw.choice(('a%', '%x', '%b%', '_@x', 's%'))}'",
            "lower(email) IS NULL",
            f"length(email) {op} {number % 7}",
            f"length(email) BETWEEN 1 AND {number % 5}",
            "substring(email, 1, 2) = '{}'".format(text[:2].replace("'", "\\'")),
            f"n * 2 {op} {number}",
            f"n % 7 {op} {number % 9}",
            f"price + 1 {op} {number / 4}",
            f"year(ts) {op} {draw.choice((2024, 2025, 2026))}",
            f"hour(seen) {op} {number % 25}",
            f"addr.city = '{draw.choice(('Ulm', 'Köln', 'x'))}'",
            "addr.city IS NOT NULL",
            f"upper(m['k']) {op} '{word.upper()}'",
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
