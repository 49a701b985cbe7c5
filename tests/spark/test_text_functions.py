"""Conditions on text against Spark's answers: all of them are columns of one SELECT."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from long import long
from pyspark.sql import SparkSession
from random_texts import random_needle, random_pattern, random_text

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import quote
from bitlake.expressions.text_functions import tokens_of
from bitlake.types import DataField, parse_type

FIELDS = [DataField(0, "s", parse_type("STRING"))]
_ATOMS = [
    "[a-z]+",
    "[^e]",
    r"\d",
    r"\w+",
    r"\s",
    ".",
    ".*",
    "(or|ut)",
    "x?",
    "o{1,2}",
    "^",
    "error",
    "時間",
    r"\.",
    r"\D",
]


def _regex(rng: random.Random, texts: list[str | None]) -> str:
    needle = "".join("\\" + c if c in "\\()[]{}|*+?.^$" else c for c in random_needle(rng, texts))
    parts = [rng.choice((needle, rng.choice(_ATOMS))) for _ in range(rng.randint(1, 3))]
    return rng.choice(("", "", "^")) + "".join(parts) + rng.choice(("", "", "$"))


_PATTERNS = [" ", "e", "日", "%", "/", "\n", "\\", r"\s", r"\s+", r"\.", r"\|", r"\\"]


def _split(rng: random.Random) -> str:
    return f"split(s, {quote(rng.choice(_PATTERNS))})"


@pytest.mark.parametrize("seed", [0, *map(long, range(1, 40))])
def test_conditions_on_text_have_spark_s_answers(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    # Short texts: Java searches a long one for minutes if an expression makes it backtrack.
    texts = [text and text[:200] for text in (random_text(rng) for _ in range(60))]
    texts += ["abc\r\n", "abc\n", "error\r", "a\u0085", "error\u2028"]
    conditions: list[str] = []
    rows = pa.table({"s": pa.array(texts, pa.string())})
    expected = []
    while len(conditions) < 150:
        pattern = random_pattern(rng, texts)
        condition = rng.choice(
            (f"s RLIKE {quote(_regex(rng, texts))}", f"s ILIKE {quote(pattern)}", f"s NOT ILIKE {quote(pattern)}")
            + (f"array_contains({_split(rng)}, {quote(random_needle(rng, texts))})", f"size({_split(rng)}) > 2")
        )
        try:
            bound = bind(parse_predicate(condition), FIELDS)
        except InvalidRequest:
            continue  # such as an expression whose matches could differ
        conditions.append(condition)
        # IS TRUE in both: binding turns NULL into FALSE.
        mask = evaluate(bound, rows, FIELDS).to_pylist()
        expected.append([value is True for value in mask])
    frame = spark.createDataFrame([(i, text) for i, text in enumerate(texts)], "id INT, s STRING").orderBy("id")
    answers = frame.selectExpr(*(f"coalesce({c}, false) AS c{i}" for i, c in enumerate(conditions))).collect()
    for i, condition in enumerate(conditions):
        assert [row[i] for row in answers] == expected[i], condition


def _token_condition(rng: random.Random, tokens: list[str]) -> str:
    listed = ", ".join(quote(t) for t in rng.sample(tokens, rng.randint(1, 3)))
    return rng.choice(
        (f"has_token(s, {listed.split(', ')[0]})", f"has_all_tokens(s, array({listed}))")
        + (f"has_any_token(s, array({listed}))", f"NOT has_any_token(s, array({listed}))")
    )


@pytest.mark.parametrize("seed", [0, *map(long, range(1, 20))])
def test_token_functions_mean_the_same_everywhere(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lake = bitlake.connect(tmp_path, spark=spark)
    texts = [t for t in (random_text(rng) for _ in range(80)) if t is None or len(t) < 2000]
    table = lake.create_table("lines", pa.table({"id": range(len(texts)), "s": pa.array(texts, pa.string())}))
    tokens = sorted({t for text in texts if text for t in tokens_of(text)} | {"absent"})
    conditions = [_token_condition(rng, tokens) for _ in range(40)]
    # DuckDB maps some letters to another case: it reports these instead of answering.
    few = f"CASE WHEN s RLIKE {quote(r'^[a-zA-Z0-9 :_/]+$')} THEN s END"
    conditions += [f"{few} ILIKE {quote('%' + t.upper() + '%')}" for t in rng.sample(tokens, 5) if t.isascii()]
    conditions += [f"s RLIKE {quote('^' + t)}" for t in rng.sample(tokens, 5) if t.isalnum() and t.isascii()]
    text = f"SELECT id, {', '.join(f'{c} AS c{i}' for i, c in enumerate(conditions))} FROM lines ORDER BY id"
    on_spark = [tuple(row) for row in lake.sql(text).collect()]
    assert lake.sql(text, engine="duckdb").fetchall() == on_spark
    for i, condition in enumerate(conditions):
        chosen = sorted(table.scan(["id"], where=condition).to_arrow()["id"].to_pylist())
        assert chosen == [row[0] for row in on_spark if row[i + 1]], condition


@pytest.mark.parametrize(
    "call", ["has_token(s, 'a b')", "has_all_tokens(s, array('a b'))", "has_any_token(s, array())", "has_token(s, '')"]
)
def test_what_is_not_a_token_is_an_error_everywhere(spark: SparkSession, tmp_path: Path, call: str) -> None:
    lake = bitlake.connect(tmp_path, spark=spark)
    lake.create_table("lines", pa.table({"s": ["a b"]}))
    text = f"SELECT * FROM lines WHERE {call}"
    with pytest.raises(Exception, match=r"one token"):
        lake.sql(text).collect()
    with pytest.raises(BitlakeError, match=r"one token"):
        lake.sql(text, engine="duckdb")


def test_register_makes_token_functions_known(spark: SparkSession) -> None:
    bitlake.register(spark)
    row = spark.sql("SELECT has_token('a-b', 'b'), has_all_tokens('a-b', array('b', 'c'))").first()
    assert row is not None and tuple(row) == (True, False)


_BYTES = [b"a", b"A", b" ", b"1", b"b", b"\n", "é".encode(), "日".encode(), "😀".encode()]
_BYTES += [b"\xff", b"\xe6\x97", b"\xa5", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xa0", b"\xf0\x9f", b"\xc3"]
_OF_BYTES = [
    *(f"s LIKE {quote(p)}" for p in ("%a%", "_a%", "a_%", "%a_b%", "__", "_%_", "%é_", "a%b", "%a%b%", "_\ufffd%")),
    *(f"s RLIKE {quote(p)}" for p in ("a.", "^..$", "[^a]", "é", "\ufffd")),
    *("contains(s, 'a')", "startswith(s, 'é')", "array_contains(split(s, ' '), 'a')", "replace(s, 'é', 'x') = 'x'"),
    *("octet_length(s) = 3", "s < 'b'", "hash(s) > 0"),
]


def test_text_that_is_not_utf8_has_spark_s_answers(spark: SparkSession, tmp_path: Path) -> None:
    """LIKE with _ lost rows, on Spark too, and so did RLIKE; length and instr counted other characters."""
    rng = random.Random(7)
    stored = [b"".join(rng.choice(_BYTES) for _ in range(rng.randrange(6))) for _ in range(1200)]
    frame = spark.createDataFrame([(i, bytearray(value)) for i, value in enumerate(stored)], "id INT, b BINARY")
    frame = frame.selectExpr("id", "CAST(b AS STRING) AS s").orderBy("id")
    answers = frame.selectExpr("id", *(f"coalesce({c}, false) AS c{i}" for i, c in enumerate(_OF_BYTES))).toArrow()
    lake = bitlake.connect(str(tmp_path), spark=spark)
    options = {"bitlake.index.grams": "ngram(s)", "bitlake.index.grams.n": "3", "file-index.bitmap.columns": "s"}
    table = lake.create_table("t", pa.schema([("id", pa.int32()), ("s", pa.string())]), options=options)
    for first in range(0, 1200, 300):
        part = pa.array(stored[first : first + 300], pa.binary()).view(pa.string())
        table.append(pa.table({"id": pa.array(range(first, first + 300), pa.int32()), "s": part}))
    for i, condition in enumerate(_OF_BYTES):
        expected = [n for n, true in enumerate(answers[f"c{i}"].to_pylist()) if true]
        assert sorted(table.scan(["id"], condition).to_arrow()["id"].to_pylist()) == expected, condition
        if i % 4 == 1:
            assert sorted(r[0] for r in lake.sql(f"SELECT id FROM t WHERE {condition}").collect()) == expected, (
                condition
            )
    for condition in ("length(s) = 2", "instr(s, 'é') = 2", "left(s, 1) = 'a'"):
        with pytest.raises(InvalidRequest, match="table 'default.t': .* a text is not UTF-8"):
            table.count(condition)
