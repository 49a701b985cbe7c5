"""Random texts of several scripts, and patterns cut from them, for tests of text indexes."""

from __future__ import annotations

import random

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
