"""A text is tokenised and parsed once, and its parts and edits are what they would be as texts of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlglot import Token

from bitlake.errors import InvalidRequest
from bitlake.expressions.spark_dialect import tokenize
from bitlake.sql.parser import parse_statement, split_statements
from bitlake.sql.text import SqlText

STATEMENTS = [
    "INSERT INTO t PARTITION (p = 'a') SELECT 'it''s', `b c`, 1.5e3 FROM u -- the end\n WHERE a >= 1;",
    "/* first */ EXPLAIN SELECT /*+ BROADCAST(t) */ a FROM t ORDER BY a",
    "CREATE OR REPLACE TEMP VIEW v AS WITH c AS (SELECT 1 AS x) SELECT * FROM c",
    "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id AND s.id > 0 "
    "WHEN MATCHED AND t.v <> 'x' THEN UPDATE SET v = CASE WHEN s.id = 1 THEN 'y' END WHEN NOT MATCHED THEN INSERT *",
    "UPDATE t SET a = b + 1, s.c = DEFAULT WHERE d IN (1, 2)",
    "DELETE FROM t WHERE x = r'\\d' AND y = X'0F'",
    "EXECUTE IMMEDIATE 'SELECT ?' || x USING (1 + 2, 'b')",
    "CACHE LAZY TABLE v AS SELECT 1",
]


def places(tokens: list[Token]) -> list[tuple[Any, ...]]:
    return [(t.token_type, t.text, t.start, t.end) for t in tokens]


def texts(value: object) -> Iterator[SqlText]:
    """The texts in a statement."""
    if isinstance(value, SqlText):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from texts(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from texts(each)


def test_a_text_is_read_when_it_is_first_needed_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(text: str) -> list[Token]:
        read.append(text)
        return tokenize(text)

    monkeypatch.setattr("bitlake.sql.text.tokenize", counted)
    text = SqlText("SELECT a FROM t WHERE (b = 1)")
    assert SqlText(text) is text and read == []
    assert text.words[:2] == ["SELECT", "A"] and text.closing == {5: 9}
    assert text.tree is text.tree and text.tokens is text.tokens
    assert text.part(22).tree is not None and text.part(14, 15).words == ["T"]
    assert read == [text]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_parts_have_the_tokens_that_they_have_alone(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = parse_statement(SqlText(statement))
    found = list(texts(parsed))
    alone = [places(tokenize(str(text))) for text in found]
    monkeypatch.setattr("bitlake.sql.text.tokenize", lambda text: pytest.fail(f"tokenised again: {text}"))
    assert found and [places(text.tokens) for text in found] == alone
    assert all(text.tree is not None for text in found)


def test_the_statements_of_a_script_share_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    script = SqlText("SELECT ';' ; -- one\n SELECT `;`;; \n DELETE FROM t WHERE a = 1 \n")
    alone = [places(tokenize(str(text))) for text in split_statements(script)]
    monkeypatch.setattr("bitlake.sql.text.tokenize", lambda text: pytest.fail(f"tokenised again: {text}"))
    found = split_statements(script)
    assert found == ["SELECT ';'", "-- one\n SELECT `;`", "DELETE FROM t WHERE a = 1"]
    assert [places(text.tokens) for text in found] == alone


def test_a_part_that_cuts_a_token_is_a_text_of_its_own() -> None:
    text = SqlText("SELECT abc FROM t")
    assert [t.text for t in text.part(8).tokens] == ["bc", "FROM", "t"]
    assert text.part(0) is text


def test_edits_make_another_text() -> None:
    text = SqlText("SELECT a FROM t")
    assert text.edit([]) is text
    edited = text.edit([(14, 15, "`u`"), (7, 8, "b"), (15, 15, " AS t")])
    assert edited == "SELECT b FROM `u` AS t" and edited.words[1] == "B" and text == "SELECT a FROM t"


@pytest.mark.parametrize("text", ["SELECT FROM WHERE (", "SELECT 1; SELECT 2", "", "SELECT map('a', 1, 'b')"])
def test_what_sqlglot_cannot_read_has_no_tree(text: str) -> None:
    assert SqlText(text).tree is None


def test_an_unclosed_quote_is_found_by_the_tokens() -> None:
    text = SqlText("SELECT 'a")
    assert text.tree is None
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="cannot read the SQL"):
            _ = text.tokens


def test_every_query_of_the_analyser_can_be_a_part() -> None:
    for line in (Path(__file__).parent / "queries.txt").read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith((" ", "--")) and line.count("'") % 2 == 0:
            whole = SqlText(f"INSERT INTO x {line}")
            assert places(whole.part(len("INSERT INTO x ")).tokens) == places(tokenize(line))
