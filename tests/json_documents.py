"""Random JSON texts: nested, with duplicated keys, escapes, numbers of every form, and damage."""

from __future__ import annotations

import random

KEYS = ("a", "b", "c", "id", "é", "A", "")
PATHS = ("$.a", "$.a.b", "$.id", "$['b'].c", "$.é")
_SPACES = ("", "", "", " ", "\n", "\t ")
_TEXTS = ("", "x", "needle", "日本", "😀", "it's", '\\"', "\\\\", "\\/", "\\n", "\\u0041", "\\u00e9", "\\ud83d\\ude00")
_TEXTS += ("\\ud83d", "\\udc00\\ud800", "\t", "{", "]", ",", ":", "\\\\\\\\", "\\u0000", "a,b", "null", "\\u20AC")
_NUMBERS = ("0", "7", "42", "-1", "12345678901234567890123", "1.5", "1e3", "-0", "0.10", "9223372036854775807")
_ROOTS = ("5", "null", '"a"', "[]", "", "  ", '[{"a": 1}]', "not json", "{", "}", '{"a"', "\ufeff{}")
_DAMAGE = ('"', "\\", ",", ":", "{", "}", "[", "]", "'", "x", "01", "+1", "NaN", "\\x", "\\u12", " ", "\x0b", ".", "/")


def document(draw: random.Random) -> str:
    """A JSON text, in one of six cases damaged."""
    if draw.random() < 0.05:
        return draw.choice(_ROOTS)
    made = draw.choice(_SPACES) + _object(draw, 3) + draw.choice(("", "", "", " ", "x", "{", "\x00", '"'))
    if draw.random() < 1 / 6:
        at = draw.randrange(len(made) + 1)
        made = made[:at] + draw.choice(_DAMAGE) + made[at + draw.randrange(2) :]
    return made


def _object(draw: random.Random, depth: int) -> str:
    space = draw.choice(_SPACES)
    members = (f"{space}{_key(draw)}{space}:{space}{_value(draw, depth - 1)}{space}" for _ in range(draw.randrange(5)))
    return "{" + ",".join(members) + "}"


def _key(draw: random.Random) -> str:
    key = draw.choice(KEYS)
    if key and draw.random() < 0.1:
        key = f"\\u{ord(key[0]):04x}{key[1:]}"
    return f'"{key}"'


def _value(draw: random.Random, depth: int) -> str:
    pick = draw.random()
    if depth > 0 and pick < 0.3:
        return _object(draw, depth)
    if depth > 0 and pick < 0.36:
        return "[" + ",".join(_value(draw, depth - 1) for _ in range(draw.randrange(3))) + "]"
    if pick < 0.65:
        return '"' + "".join(draw.choice(_TEXTS) for _ in range(draw.randrange(1, 3))) + '"'
    return draw.choice((*_NUMBERS, "true", "false", "null"))
