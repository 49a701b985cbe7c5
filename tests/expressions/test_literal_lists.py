"""Long lists of literals: the same predicates, rows and errors as the parser gives, without its seeing them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from long import every, exhaustive, long

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.expressions import parser
from bitlake.expressions.literal_lists import without_lists
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.tree import In

NUMBERS = ", ".join(str(7 * i - 900) for i in range(600))
TEXTS = ",".join(f"'t{i:04d} é'" for i in range(400))
DECIMALS = ", ".join(f"{i}.{i % 100:02}" for i in range(-90, 90))
DOUBLES = ",".join(f"{i}.5D" for i in range(-90, 90))
DAYS = ", ".join(f"DATE '{1990 + i}-1-{i % 28 + 1:02}'" for i in range(40))
TIMES = ", ".join(f"TIMESTAMP_NTZ'{1990 + i}-01-01 00:00:{i % 60:02}.{i}'" for i in range(40))
BYTES = ", ".join(f"X'{i:04x}'" for i in range(100))
PAIRS = ", ".join(f"({i % 90}, {7 * i}L)" for i in range(200))
TRIPLES = ", ".join(f"('t{i}', {i}.5, CAST(NULL AS INT))" for i in range(10, 99))
STAMPS = ", ".join(f"(DATE '2020-01-01', TIMESTAMP_NTZ '2020-01-01 00:00:{i:02}')" for i in range(50))
HEX = ", ".join(f"(X'{i:02x}', {i}.5F)" for i in range(99))
CONDITIONS = [
    f"(a, c) IN ({PAIRS})",
    f"(a, c) NOT IN ({PAIRS}, ( - 1 , 2l )) AND b IN ({TEXTS})",
    f"(a, c) IN ({PAIRS}, (1, 2))",
    f"(a, c) IN ({PAIRS}, (1, 9999999999L))",
    f"(a, c) IN ({PAIRS}, (9999999999, 1L))",
    f"(a, c) IN ({PAIRS}, (1, 2L, 3))",
    f"(a, c) IN ({PAIRS}, 1)",
    f"(a, c) IN ({PAIRS}, (1, 1 + 1))",
    f"a IN ({PAIRS})",
    f"(a, c, b) IN ({PAIRS})",
    f"(b, d, a) IN ({TRIPLES})",
    f"(b, d, a) IN ({TRIPLES}, ('it''s )(', 0.5, cast(null as int)))",
    f"(b, d, a) IN ({TRIPLES}, ('it''s', 0.5, NULL))",
    f"(b, d, a) IN ({TRIPLES}, ('it\\'s', 0.5, 1))",
    f"(b, d, a) IN ({TRIPLES}, ('x', 10.5, 1))",
    f"(day, ts) IN ({STAMPS})",
    f"(x, f) IN ({HEX}, (x'ff', 7f))",
    f"a IN ({NUMBERS})",
    f"a NOT IN ( {NUMBERS} ) AND b in({TEXTS}) OR c = 1",
    f"NOT (`a` IN ({NUMBERS}))",
    f"upper(b) IN ({TEXTS})",
    f"CASE WHEN a IN ({NUMBERS}) THEN b = 'x' ELSE false END",
    f"b = 'a IN ({NUMBERS})'",
    f'b = "a IN ({NUMBERS})" AND a IN ({NUMBERS})',
    f"a = 1 -- a IN ({NUMBERS})\n AND b = 'it''s'",
    f"a = 1 /* a IN ({NUMBERS}) */ AND b = 'it\\'s'",
    f"a IN ({NUMBERS}, 1.5)",
    f"a IN ({NUMBERS}, NULL)",
    f"a IN ({NUMBERS}, 99999999999999999999)",
    f"a IN ({NUMBERS}, 0012)",
    f"a IN ({NUMBERS}, - 5, 1 + 1)",
    f"b IN ({TEXTS}, 'it\\'s')",
    f"b IN ({TEXTS}, 'two' 'parts')",
    f"b IN ({TEXTS}, r'raw\\')",
    f"b IN ({TEXTS}, 5)",
    f"b IN ('',{TEXTS})",
    f"a IN ({NUMBERS}",
    f"a IN ({NUMBERS},)",
    f"a IN ({NUMBERS}) AND",
    f"a IN ({NUMBERS}) AND typo(a) = 1",
    f"(a, b) IN ({NUMBERS})",
    f"a IN ({NUMBERS}) AND b = '\ue0000'",
    f"struct(a IN ({NUMBERS})).col1",
    f"d IN ({DECIMALS}, NULL, 7)",
    f"d IN ({DECIMALS}, 1.)",
    f"d IN ({DECIMALS}, .5)",
    f"d IN ({DECIMALS}, 1e2)",
    f"d IN ({DECIMALS}, 1.5BD)",
    f"d IN ({DECIMALS}, 123456789012345678901234567890123456789)",
    f"d NOT IN ({DOUBLES}, 1L, - 2S, 3y, 4f)",
    f"d IN ({DOUBLES}, 128Y)",
    f"day IN (null, {DAYS})",
    f"day IN ({DAYS}, DATE '2020-02-30')",
    f"day IN ({DAYS}, DATE('2020-02-03'))",
    f"day IN ({DAYS}, current_date())",
    f"ts IN ({TIMES}, DATE '2020-01-01')",
    f"ts IN ({TIMES.replace('_NTZ', '')}, timestamp_ltz '2020-03-29 02:30:00')",
    f"ts IN ({TIMES}, TIMESTAMP_NTZ '2020-01-01 00:00:00 Europe/Berlin')",
    f"x IN ({BYTES}, x'F', X'')",
    f"x IN ({BYTES}, X'fg')",
    f"b IN ({TEXTS}, '', NULL)",
    f"b IN ({TEXTS}, 'it''s', '''', '')",
    f"b IN (NULL, 'it''s', {TEXTS})",
    f"b IN ({TEXTS}, 'two''parts' 'more')",
    f"b IN ({TEXTS}, N'x')",
    f"b IN ({TEXTS}, NULLS)",
    f"b IN ({', '.join(['NULL'] * 200)})",
    f"b IN (SELECT {NUMBERS.replace(', ', ' ')} FROM t)",
]


def outcome(text: str) -> Any:
    try:
        return parse_predicate(text, "Europe/Berlin")
    except InvalidRequest as e:
        return str(e)


@pytest.mark.parametrize("text", every(3, CONDITIONS), ids=range(len(CONDITIONS)))
def test_the_parser_gives_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = outcome(text)
    monkeypatch.setattr(parser, "without_lists", lambda text: (text, ()))
    assert parsed == outcome(text)


@pytest.mark.parametrize("count", [8, exhaustive(20), long(60)])
def test_random_lists_are_read_as_the_parser_reads_them(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(17)
    literals = ["1", "-1", "00", "123456789012345678", "'a'", "'b c'", "''", "NULL", "2.0", "1e2", "-0", '"q"', "true"]
    literals += ["1L", "- 1.5D", "DATE '2020-01-01'", "date'2020'", "TIMESTAMP '2020-01-01'", "X'0a'", "-2.50", "null"]
    texts = []
    for _ in range(count):
        few = pick.sample(literals, pick.choice([1, 1, 2, 3]))
        values = [pick.choice(few) for _ in range(500)]
        separator = pick.choice([",", ", ", " ,\n", " , "])
        texts.append(f"{pick.choice(['a', 'b', '(c)'])} {pick.choice(['IN', 'not in'])} ({separator.join(values)})")
    parsed = [outcome(t) for t in texts]
    monkeypatch.setattr(parser, "without_lists", lambda text: (text, ()))
    assert parsed == [outcome(t) for t in texts]


def test_the_parser_does_not_see_long_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    parse = parser._syntax_tree

    def seen(text: str, timezone: str) -> Any:
        lengths.append(len(text))
        return parse(text, timezone)

    monkeypatch.setattr(parser, "_syntax_tree", seen)
    parsed = parse_predicate(f"a IN ({NUMBERS}) AND b NOT IN ({TEXTS}) AND (b, d, a) IN ({TRIPLES})")
    assert max(lengths) < 200 and len(lengths) == 1
    numbers = next(c for c in parsed.children if isinstance(c, In))  # type: ignore[union-attr]
    assert numbers.values == tuple(7 * i - 900 for i in range(600))


def test_lists_that_the_parser_refuses_stay_in_the_text() -> None:
    for literal in ("X 'ff'", "X'zz'", "X'f''f'"):
        text = f"b IN ({', '.join([literal] * 200)})"
        assert without_lists(text) == (text, ())


def test_an_unclosed_quote_is_passed_over_once() -> None:
    # Each quote in it began a search of its own to the end of the text: 256 KB took minutes.
    text = "SELECT k FROM t WHERE s = " + '"\\' * 128_000
    assert without_lists(text) == (text, ())


def test_short_lists_stay_in_the_text() -> None:
    text, lists = without_lists("a IN (1, 2, 3)" + " " * 2000)
    assert text.startswith("a IN (1, 2, 3)") and not lists


@pytest.mark.parametrize("index", ["bloom-filter", "bitmap", "range-bitmap", "bsi"])
@pytest.mark.parametrize(("arrow", "of"), [(pa.int16(), int), exhaustive(pa.int64(), int), (pa.string(), str)])
def test_rows_of_long_lists(tmp_path: Any, index: str, arrow: pa.DataType, of: type) -> None:
    if index == "bsi" and of is str:
        pytest.skip("BSI does not index strings")
    table = bitlake.connect(str(tmp_path)).create_table(
        "t", pa.table({"k": pa.array([], arrow)}), options={f"file-index.{index}.columns": "k"}
    )
    held = [*range(300), *range(5000, 5300), None]
    for part in (held[:200], held[200:400], held[400:]):
        table.append(pa.table({"k": pa.array([None if v is None else of(v) for v in part], arrow)}))
    asked = [*range(100, 700, 2), *range(5100, 5200), 40_000, 70_000, -5, 1 << 40]
    for listed in (asked, asked[:1], [70_000, 1 << 40], []):
        values = [of(v) for v in listed]
        stored = [of(v) for v in held if v is not None]
        expected = [v for v in stored if v in set(values)]
        others = [v for v in stored if v not in set(values)]
        scan = table.scan(where=bitlake.col("k").isin(values)) if values else None
        text = ", ".join(f"'{v}'" if of is str else str(v) for v in values)
        for parsed in [scan, table.scan(where=f"k IN ({text})")] if scan is not None else []:
            assert sorted(parsed.to_arrow().column("k").to_pylist()) == sorted(expected)
        if values:
            rows = table.scan(where=f"k NOT IN ({text})").to_arrow().column("k").to_pylist()
            assert sorted(rows) == sorted(others)
