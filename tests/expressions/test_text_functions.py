from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bitlake import col
from bitlake.errors import InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.condition import Condition
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql
from bitlake.types import DataField, parse_type

FIELDS = [DataField(0, "s", parse_type("STRING")), DataField(1, "c", parse_type("CHAR(3)"))]
ROWS = pa.table(
    {
        "s": ["user=42 failed", "USER=7 ok", None, "x_user y", "a\nb", "\u212aelvin", ""],
        "c": ["abc", "a", None, "b", "c", "d", "e"],
    }
)
CASES = [
    ("s ILIKE '%user%'", col("s").ilike("%USER%"), [0, 1, 3]),
    ("s NOT ILIKE '%user%'", ~col("s").ilike("%User%"), [4, 5, 6]),
    ("s ILIKE '!%%' ESCAPE '!'", col("s").ilike("!%%", "!"), []),
    ("s ILIKE 'KELVIN'", col("s").ilike("kelvin"), [5]),
    ("s ILIKE ANY ('user%', 'A_B')", col("s").ilike("user%") | col("s").ilike("A_B"), [0, 1, 4]),
    (r"s RLIKE 'user=\\d+'", col("s").rlike(r"user=\d+"), [0]),
    (r"s NOT RLIKE 'user=\\d+'", ~col("s").rlike(r"user=\d+"), [1, 3, 4, 5, 6]),
    ("regexp_like(s, '^$')", col("s").rlike("^$"), [6]),
    ("regexp(s, 'k$')", col("s").rlike("k$"), [1]),
    ("has_token(s, 'user')", col("s").has_token("user"), [0, 3]),
    ("NOT has_token(s, 'user')", ~col("s").has_token("user"), [1, 4, 5, 6]),
    ("has_token(lower(s), 'user')", col("s").lower().has_token("user"), [0, 1, 3]),
    ("has_all_tokens(s, array('user', '42'))", col("s").has_all_tokens(["user", "42"]), [0]),
    ("has_any_token(s, array('y', 'b'))", col("s").has_any_token(("y", "b")), [3, 4]),
    ("has_token(s, NULL)", col("s").is_null() & col("s").is_not_null(), []),
]


def true_rows(condition: str | Condition) -> list[int]:
    tree = parse_predicate(condition) if isinstance(condition, str) else condition.predicate
    mask = evaluate(bind(tree, FIELDS), ROWS, FIELDS)
    return [i for i, true in enumerate(mask.to_pylist()) if true]


@pytest.mark.parametrize(("condition", "expected"), [("lower(s) = 'user777'", [277]), ("upper(s) = 'USER777'", [277])])
def test_case_of_an_array_that_begins_inside_its_data(condition: str, expected: list[int]) -> None:
    """Bug: Arrow's ascii_lower returns other texts for such an array; bitmap(lower(s)) skipped matching rows."""
    whole = pa.array([f"User{i}" for i in range(1000)])
    rows = pa.table({"s": whole.slice(500).cast(pa.large_string())})
    fields = FIELDS[:1]
    mask = evaluate(bind(parse_predicate(condition), fields), rows, fields)
    assert pc.indices_nonzero(mask).to_pylist() == expected


@pytest.mark.parametrize(("text", "condition", "expected"), CASES, ids=[text for text, _, _ in CASES])
def test_conditions_on_text(text: str, condition: Condition, expected: list[int]) -> None:
    assert true_rows(text) == true_rows(condition) == expected
    assert true_rows(to_sql(bind(parse_predicate(text), FIELDS), FIELDS)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("has_token(s, 'a b')", "'a b' is not one token"),
        ("has_token(s, '')", "'' is not one token"),
        ("has_token(s, s)", "s is not a constant string"),
        ("has_token(c, 'a')", "c is CHAR"),
        ("has_all_tokens(s, 'a')", "takes a string and an array of tokens"),
        ("has_all_tokens(s, array())", "needs at least one token"),
        ("s RLIKE s", "s is not a constant string"),
        ("s RLIKE '(?i)a'", "groups with flags"),
        ("s RLIKE '('", "ends early"),
        ("s RLIKE 'a|$'", "'$' is only taken"),
    ],
)
def test_what_a_scan_cannot_evaluate_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        true_rows(text)


def test_tokens_are_a_list_of_texts() -> None:
    with pytest.raises(InvalidRequest, match="takes a list of texts"):
        col("s").has_all_tokens("user")
    with pytest.raises(InvalidRequest, match="takes text, and not 4"):
        col("s").has_any_token([4])  # type: ignore[list-item]
