"""bitlake's functions in Spark sessions: temporary SQL functions of Spark's own, so that no Python runs per row."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bitlake.expressions.sql_text import quote
from bitlake.expressions.tokens import SEPARATOR

_IS_TOKEN = rf"\A[^{SEPARATOR}]+\z"
_BEFORE, _BEHIND = rf"(\A|[{SEPARATOR}])", rf"([{SEPARATOR}]|\z)"
_NOT_A_TOKEN = (
    'raise_error(concat("\'", {0}, "\' is not one token: letters and digits without a separator between them"))'
)
_TOKENS = f"split(text, {quote(f'[{SEPARATOR}]+')})"
_CHECKED = f"CASE WHEN t RLIKE {quote(_IS_TOKEN)} THEN array_contains({_TOKENS}, t) ELSE {_NOT_A_TOKEN.format('t')} END"
_NO_TOKENS = "raise_error('it needs at least one token')"

TOKEN_FUNCTIONS = {
    "has_token": (
        "text STRING, token STRING",
        f"CASE WHEN token IS NULL THEN NULL WHEN token RLIKE {quote(_IS_TOKEN)} "
        f"THEN text RLIKE concat({quote(_BEFORE)}, token, {quote(_BEHIND)}) ELSE {_NOT_A_TOKEN.format('token')} END",
    ),
    "has_all_tokens": (
        "text STRING, tokens ARRAY<STRING>",
        f"CASE WHEN size(tokens) = 0 THEN {_NO_TOKENS} ELSE forall(tokens, t -> {_CHECKED}) END",
    ),
    "has_any_token": (
        "text STRING, tokens ARRAY<STRING>",
        f"CASE WHEN size(tokens) = 0 THEN {_NO_TOKENS} ELSE exists(tokens, t -> {_CHECKED}) END",
    ),
}
"""Parameters and body of each function, as :mod:`bitlake.expressions.text_functions` defines it."""


def names_token_function(text: str) -> bool:
    """Whether a statement may call one of the functions."""
    lower = text.lower()
    return any(name in lower for name in TOKEN_FUNCTIONS)


def register_functions(spark: SparkSession) -> None:
    """Create the functions in a session, once."""
    if "_bitlake_functions" in vars(spark):
        return
    for name, (parameters, body) in TOKEN_FUNCTIONS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) RETURNS BOOLEAN RETURN {body}")
    vars(spark)["_bitlake_functions"] = True
