"""Tokens: the words of a text, by which ``has_token`` and the ``tokens`` index search.

Version 1: a token is a maximal run of ASCII letters, ASCII digits and characters outside of ASCII; every other ASCII
character, ``_`` included, separates tokens.  Upper and lower case differ.  In UTF-8 that is a rule about bytes, so
texts need not be decoded to find their tokens.
"""

from __future__ import annotations

import re

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.lazy_modules import compute as pc

TOKENIZER = 1
"""The version of the rule, which the index stores."""
SEPARATOR = r"\x00-/:-@\[-`{-\x7f"
_SEPARATED = re.compile(f"[{SEPARATOR}]+")


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text, in order.

    >>> tokens_of("user_id=42, state: OK")
    ['user', 'id', '42', 'state', 'OK']
    """
    return [token for token in _SEPARATED.split(text) if token]


def inner_tokens(part: str) -> list[str]:
    """Return the tokens of a part of a text that are tokens of the whole text, whatever surrounds the part.

    >>> inner_tokens("id=42, state: OK")
    ['42', 'state']
    """
    return [token for token in _SEPARATED.split(part)[1:-1] if token]


def checked_token(text: str) -> str:
    """Check that a text is one token, and return it; raises :class:`InvalidRequest` if it is not."""
    if tokens_of(text) != [text]:
        raise InvalidRequest(f"{text!r} is not a token: expected letters and digits without a separator between them")
    return text


def token_regex(token: str) -> str:
    """Return the regular expression (Java, RE2) that finds a token in a text.

    >>> token_regex("OK")
    '(\\\\A|[\\\\x00-/:-@\\\\[-`{-\\\\x7f])OK([\\\\x00-/:-@\\\\[-`{-\\\\x7f]|\\\\z)'
    """
    return rf"(\A|[{SEPARATOR}]){token}([{SEPARATOR}]|\z)"


def has_token(texts: pa.Array, token: str) -> pa.BooleanArray:
    """Return for each text whether the token is one of its tokens; NULL for NULL."""
    matches = pc.match_substring(texts, token)
    count = matches.true_count
    if 4 * count > len(texts):
        return pc.match_substring_regex(texts, token_regex(token))
    if count == 0:
        return matches
    # A substring is found several times faster than an expression matches, so that only few texts are matched.
    among = pc.match_substring_regex(texts.filter(matches), token_regex(token))
    return pc.replace_with_mask(matches, pc.fill_null(matches, False), among)
