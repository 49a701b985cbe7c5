"""Functions that test text, and what must occur in a text for them to be TRUE: RLIKE, ``has_token`` …, ``split``.

Patterns, separators and tokens are constants.

Tokens are the words of a text, by which ``has_token`` and the ``tokens`` index search.  Version 1 of the rule: a token
is a maximal run of ASCII letters, ASCII digits and characters outside of ASCII; every other ASCII character, ``_``
included, separates tokens.  Upper and lower case differ.  In UTF-8 that is a rule about bytes, so texts need not be
decoded to find their tokens.

A :class:`TextCondition` is what must occur in the text of every row for which a predicate is TRUE.  Indexes of text
evaluate these instead of the predicate, which is evaluated again over the rows that they leave.  Each
is a *necessary* condition, derived from the predicate's constants: the literal texts of a LIKE pattern, the literals
that every match of a regular expression contains, the words that ``has_token`` and ``array_contains(split(…))`` seek.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bitlake.expressions.java_regex import java_regex
from bitlake.expressions.terms import BOOLEAN, STRING, Bound, Function, Refused, Typed, text_argument
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op, Piece, Predicate, like_pieces
from bitlake.lazy_modules import compute as pc
from bitlake.types.datatypes import ArrayType
from bitlake.types.utf8 import java_text

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


TOKEN_LISTS = frozenset({"has_all_tokens", "has_any_token"})
"""Functions whose second argument in SQL is an array of tokens; as terms, the tokens follow the text."""


def _constant_text(term: Typed) -> str:
    if not term.is_literal or not isinstance(term.parameter, str):
        raise Refused(f"{term.sql} is not a constant string")
    return term.parameter


def _bind_rlike(arguments: Sequence[Typed], zone: str) -> Bound:
    text, pattern = arguments
    java_regex(_constant_text(pattern))
    return [text_argument(text)], BOOLEAN, _constant_text(pattern)


def _rlike(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.match_substring_regex(java_text(arrays[0]), java_regex(term.parameter).re2)


def _token(term: Typed) -> str:
    token = _constant_text(term)
    if tokens_of(token) != [token]:
        raise Refused(f"{term.sql} is not one token: letters and digits without a separator between them")
    return token


def _bind_one(arguments: Sequence[Typed], zone: str) -> Bound:
    text, token = arguments
    return [text_argument(text)], BOOLEAN, (_token(token),)


def _bind_several(arguments: Sequence[Typed], zone: str) -> Bound:
    text, *tokens = arguments
    if not tokens:
        raise Refused("it needs at least one token")
    return [text_argument(text)], BOOLEAN, tuple(map(_token, tokens))


def _has(join: Callable[[pa.Array, pa.Array], pa.Array]) -> Callable[[Typed, Sequence[pa.Array], int], pa.Array]:
    def kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        return functools.reduce(join, (has_token(arrays[0], token) for token in term.parameter))

    return kernel


def _both(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.and_(a, b)


def _either(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.or_(a, b)


_WHITESPACE = " \t\n\x0b\f\r"
"""Java's ``\\s``."""
_ONE_CHARACTER = re.compile(r"(?s)[^\\\[\](){}.*+?^$|]|\\[ -/:-@\[-`{-~]")


def separators(pattern: str) -> str:
    r"""Return the characters that a pattern of ``split`` separates at: one character, ``\s`` or ``\s+``.

    Raises :class:`Refused` for another pattern.

    >>> separators(r"\|")
    '|'
    """
    if pattern in (r"\s", r"\s+"):
        return _WHITESPACE
    if _ONE_CHARACTER.fullmatch(pattern) is None:
        raise Refused(f"'{pattern}' is not one character, \\s or \\s+")
    return pattern[-1]


def separator_regex(pattern: str) -> str | None:
    r"""Return RE2's pattern for ``\s`` or ``\s+``; None for a pattern of one character."""
    at = separators(pattern)
    return None if len(at) == 1 else f"[{at}]{'+' if pattern.endswith('+') else ''}"


def _bind_split(arguments: Sequence[Typed], zone: str) -> Bound:
    text, pattern = arguments
    separators(_constant_text(pattern))
    return [text_argument(text)], ArrayType(STRING), pattern.parameter


def _split(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    regex = separator_regex(term.parameter)
    if regex is None:
        return pc.split_pattern(arrays[0], separators(term.parameter))
    return pc.split_pattern_regex(arrays[0], regex)


TEXT_TESTS = {
    "rlike": Function(_bind_rlike, _rlike),
    "has_token": Function(_bind_one, _has(_both)),
    "has_all_tokens": Function(_bind_several, _has(_both)),
    "has_any_token": Function(_bind_several, _has(_either)),
    "split": Function(_bind_split, _split),
}


class TextUnit(enum.Enum):
    """The kind of the parts of a :class:`TextCondition`."""

    EXACT = "exact"
    """Substrings of the text."""
    LOWER = "lower"
    """Substrings of the text's lower case, in lower case themselves."""
    TOKEN = "token"
    """Tokens of the text (:func:`tokens_of`)."""


@dataclass(frozen=True, slots=True)
class TextCondition:
    """For at least one of the alternatives, all parts occur in the text of ``column``.

    An alternative without parts holds for every text but NULL.
    """

    column: str
    unit: TextUnit
    alternatives: tuple[tuple[str, ...], ...]


def like_condition(column: str, pieces: tuple[Piece, ...]) -> TextCondition:
    """Return the condition that every text that matches a LIKE pattern meets.

    >>> like_condition("s", like_pieces("%needle_in%")).alternatives
    (('needle', 'in'),)
    """
    return TextCondition(column, TextUnit.EXACT, (tuple(p for p in pieces if isinstance(p, str)),))


def leaf_condition(leaf: Leaf) -> TextCondition | None:
    """Return what a leaf of text requires.  None if it requires nothing, such as a negated one."""
    match leaf:
        case Like(column, pattern, False, escape):
            return like_condition(column, like_pieces(pattern, escape))
        case Comparison(column, Op.EQ, str() as value):
            return TextCondition(column, TextUnit.EXACT, ((value,),))
        case In(column, values, False) if all(isinstance(v, str) for v in values):
            return TextCondition(column, TextUnit.EXACT, tuple((v,) for v in values))
    return None


# --- tests of terms ---------------------------------------------------------------------------------------------------


def term_condition(term: Typed, leaf: Predicate | None) -> TextCondition | None:
    """Return what a test of a bound term requires of the text of a column.  None if it requires nothing.

    ``leaf`` is about the term's value, whatever column it names; None: the term is TRUE.
    """
    match term:
        case Typed("element", arguments=(Typed("split", arguments=(Typed("column", parameter=column),)) as split,)):
            return _piece_condition(column, separators(split.parameter), leaf)
        case Typed("lower", arguments=(Typed("column", parameter=column),)) if leaf is not None:
            return None if not isinstance(leaf, _LEAVES) else _lower(leaf_condition(replace(leaf, column=column)))
        case Typed("instr", arguments=(Typed("column", parameter=column),), parameter=str() as text):
            return TextCondition(column, TextUnit.EXACT, ((text,),)) if _is_positive(leaf) else None
        case Typed(function, arguments=(Typed("column", parameter=column),), parameter=sought) if _is_true(leaf):
            match function, sought:
                case "rlike", pattern:
                    return TextCondition(column, TextUnit.EXACT, (java_regex(pattern).literals,))
                case "has_token" | "has_all_tokens", tokens:
                    return TextCondition(column, TextUnit.TOKEN, (tuple(tokens),))
                case "has_any_token", tokens:
                    return TextCondition(column, TextUnit.TOKEN, tuple((token,) for token in tokens))
    return None


_LEAVES = (Comparison, In, Like, IsNull)


def _piece_condition(column: str, split_at: str, leaf: Predicate | None) -> TextCondition | None:
    """Return what a text must contain if ``leaf`` is TRUE for one of its pieces between separators.

    That is all tokens of the piece, or the whole piece if a separator is itself part of a token.
    """
    match leaf:
        case Comparison(_, Op.EQ, str() as value):
            values: tuple[str, ...] = (value,)
        case In(_, listed, False) if all(isinstance(v, str) for v in listed):
            values = tuple(listed)
        case _:
            return None
    if any(tokens_of(separator) for separator in split_at):
        return TextCondition(column, TextUnit.EXACT, tuple((value,) for value in values))
    return TextCondition(column, TextUnit.TOKEN, tuple(tuple(tokens_of(value)) for value in values))


def _lower(condition: TextCondition | None) -> TextCondition | None:
    return None if condition is None else replace(condition, unit=TextUnit.LOWER)


def _is_true(leaf: Predicate | None) -> bool:
    """Whether a test of a BOOLEAN asks for TRUE."""
    match leaf:
        case None | Comparison(_, Op.EQ, True):
            return True
    return False


def _is_positive(leaf: Predicate | None) -> bool:
    """Whether a test of a position requires that the text was found."""
    match leaf:
        case Comparison(_, Op.GT | Op.NE, int() as least) if leaf.op is Op.GT or least == 0:
            return least >= 0
        case Comparison(_, Op.EQ | Op.GE, int() as least):
            return least > 0
        case In(_, values, False):
            return all(isinstance(v, int) and v > 0 for v in values)
    return False
