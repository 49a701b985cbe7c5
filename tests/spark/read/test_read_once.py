"""How often lake.sql() tokenises and parses a statement on its way to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlglot import Token, exp

import bitlake
from bitlake.expressions.spark_dialect import SparkSql


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    made = bitlake.connect(str(Path(tmp_path_factory.mktemp("once")) / "lake"), spark=spark)
    for name in ("t", "u"):
        made.sql(f"CREATE TABLE {name} (id INT, v STRING, w INT) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
        made.sql(f"INSERT INTO {name} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The texts that are tokenised and parsed; hints, which sqlglot tokenises alone while it parses, left out."""
    texts: dict[str, list[str]] = {"tokenised": [], "parsed": []}
    tokenizer, parser = SparkSql.tokenizer_class, SparkSql.parser_class
    tokenize, parse = tokenizer.tokenize, parser.parse

    def tokenized(self: Any, sql: str) -> list[Token]:
        if "BROADCAST" not in sql[:12]:
            texts["tokenised"].append(sql)
        return tokenize(self, sql)

    def parsed(self: Any, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        texts["parsed"].append(sql)
        return parse(self, raw_tokens, sql)

    monkeypatch.setattr(tokenizer, "tokenize", tokenized)
    monkeypatch.setattr(parser, "parse", parsed)
    return texts


@pytest.mark.parametrize(
    ("text", "args", "tokenised", "parsed"),
    [
        ("SELECT id, v FROM t WHERE id > 1", None, 1, 1),
        ("SELECT count(*) AS n FROM t WHERE id > 1 ORDER BY n", None, 1, 1),
        ("SELECT id, upper(v) FROM t WHERE w > 1 ORDER BY id LIMIT 1;", None, 1, 1),
        ("SELECT default.t.id, u.v FROM default.t JOIN u ON default.t.id = u.id WHERE default.t.w > 1", None, 1, 1),
        ("SELECT *, _metadata.file_name FROM t WHERE id > 1", None, 2, 2),  # the star leaves _metadata out
        ("SELECT id FROM t VERSION AS OF 1 WHERE id > 1", None, 2, 1),  # a name in place of the moment
        ("SELECT id FROM t WHERE id > :low", {"low": 1}, 2, 1),  # the value in place of the parameter
        (
            "WITH c AS (SELECT id, _metadata.file_name AS f FROM t WHERE id > :low) "
            "SELECT c.id, c.f, o.v FROM c JOIN t VERSION AS OF 1 AS o ON c.id = o.id WHERE o.w < 9",
            {"low": 0},
            3,
            1,
        ),
        ("EXPLAIN SELECT id FROM t WHERE id > 2 AND v = 'x'", None, 1, 1),
        ("INSERT INTO u SELECT id + 10, v, w FROM t WHERE id > 1", None, 1, 1),
        ("DELETE FROM u WHERE id = 12", None, 1, 1),
        ("CALL sys.create_tag(table => 't', tag => 'once')", None, 2, 2),  # the value as a name; each argument
        ("SHOW TABLES", None, 1, 0),
    ],
)
def test_a_statement_is_read_once(
    lake: bitlake.Lake, read: dict[str, list[str]], text: str, args: Any, tokenised: int, parsed: int
) -> None:
    lake.sql(text, args=args)
    assert len(read["tokenised"]) == tokenised, read
    assert len(read["parsed"]) == parsed, read


def test_a_query_that_comes_again_is_not_parsed(lake: bitlake.Lake, read: dict[str, list[str]]) -> None:
    for _ in range(3):
        lake.sql("SELECT default.u.v, count(*) FROM u WHERE w > 0 GROUP BY v ORDER BY v LIMIT 2")
    assert len(read["tokenised"]) == 3 and len(read["parsed"]) == 1


def test_no_text_of_a_merge_is_read_twice(lake: bitlake.Lake, read: dict[str, list[str]]) -> None:
    """Its queries are texts of their own, each of which is read once."""
    lake.sql("MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET v = u.v WHEN NOT MATCHED THEN INSERT *")
    for texts in read.values():
        assert len(texts) == len(set(texts)) <= 5, texts
