"""Random texts of several scripts, and patterns cut from them, for tests of text indexes."""

from __future__ import annotations

import random

import pyarrow as pa

from bitlake.expressions.sql_text import quote
from bitlake.expressions.text_functions import tokens_of

SCHEMA = pa.schema([("id", pa.int64()), ("message", pa.string())])
INDEXES = {
    "bitlake.index.grams": "ngram(message)",
    "bitlake.index.grams.rows": "4",
    "bitlake.index.words": "tokens(message)",
    "bitlake.index.words.rows": "8",
}

_PARTS = ["error", "Error", "ERROR", "timeout", "user_id=", "42", "7f3a9b2c", "/api/v1/orders", ": ", "\n\tat ", "x"]
_PARTS += [" "] * 3 + [
    "日本語",
    "データベース",
    "接続エラー",
    "한국어",
    "😀",
    "👩\u200d💻",
    "é",
    "e\u0301",
    "ß",
    "ſ",
    "naïve",
]
_PARTS += ["\u212aelvin", "\u0130stanbul", "ΌΣΟΣ", "%", "_", "\\", "\\%", "100%", "\0", "\x7f", "\ufffd", "Straße"]


def random_text(rng: random.Random) -> str | None:
    """A text of up to 12 parts; sometimes empty, long, or NULL."""
    kind = rng.random()
    if kind < 0.05:
        return None
    if kind < 0.1:
        return ""
    text = "".join(rng.choices(_PARTS, k=rng.randint(1, 12)))
    return text * rng.randint(200, 2000) if kind > 0.995 else text


def random_needle(rng: random.Random, texts: list[str | None]) -> str:
    """A part of one of the texts, or of another."""
    held = [t for t in texts if t]
    text = rng.choice(held) if held and rng.random() < 0.8 else random_text(rng) or ""
    at = rng.randint(0, len(text))
    return text[at : at + rng.randint(0, 14)]


def random_pattern(rng: random.Random, texts: list[str | None]) -> str:
    """A LIKE pattern of one or two needles, with ``_`` for some characters."""
    needles = [random_needle(rng, texts) for _ in range(rng.randint(1, 2))]
    patterns = ["".join("_" if rng.random() < 0.04 else _escaped(c) for c in needle) for needle in needles]
    return rng.choice(("%", "%", "%", "")) + "%".join(patterns) + rng.choice(("%", "%", "%", ""))


def _escaped(c: str) -> str:
    return "\\" + c if c in "%_\\" else c


def random_condition(draw: random.Random, texts: list[str | None]) -> str:
    """A condition of every kind that text indexes serve, about one of the texts or about another."""
    pattern, needle = quote(random_pattern(draw, texts)), random_needle(draw, texts)
    tokens = tokens_of(needle) or ["absent"]
    listed = ", ".join(map(quote, tokens))
    regex = "".join("\\" + c if c in "\\()[]{}|*+?.^$" else c for c in needle)
    text = draw.choice(
        (
            f"message LIKE {pattern}",
            f"message NOT LIKE {pattern}",
            f"message ILIKE {pattern}",
            f"lower(message) LIKE {quote(random_pattern(draw, texts).lower())}",
            f"contains(message, {quote(needle)})",
            f"startswith(message, {quote(needle)})",
            f"endswith(message, {quote(needle)})",
            f"instr(message, {quote(needle)}) > {draw.choice((-1, 0, 1))}",
            f"instr(message, {quote(needle)}) = {draw.choice((0, 1, 3))}",
            f"message RLIKE {quote(regex + '.?')}",
            f"message = {quote(draw.choice([t for t in texts if t]))}",
            f"message IN ({quote(needle)}, {quote(draw.choice([t for t in texts if t]))})",
            f"array_contains(split(message, ' '), {quote(needle)})",
            f"array_contains(split(message, '{draw.choice(('x', '%', ' ', ':'))}'), {quote(tokens[0])})",
            rf"arrays_overlap(split(message, '\\s+'), array({listed}))",
            f"has_token(message, {quote(tokens[0])})",
            f"has_all_tokens(message, array({listed}))",
            f"has_any_token(message, array({listed}))",
            f"NOT has_any_token(message, array({listed}))",
        )
    )
    return text if draw.random() < 0.7 else f"({text} {draw.choice(('AND', 'OR'))} {random_condition(draw, texts)})"


def of_a_megabyte(rng: random.Random) -> str:
    """A text of at least a million bytes, nearly all of a letter that no other text has.

    Java's regular expressions, which Spark evaluates LIKE by, take quadratic time where two needles are frequent.
    """
    return " ".join(((random_text(rng) or "")[:500], "z" * 1_000_000, (random_text(rng) or "")[:500]))
