"""Text conditions: what must occur in the text of every row for which a predicate is TRUE.

Indexes of text evaluate these instead of the predicate, which is evaluated again over the rows that they leave.  Each
is a *necessary* condition, derived from the predicate's constants: the literal texts of a LIKE pattern, the literals
that every match of a regular expression contains, the words that ``has_token`` and ``array_contains(split(…))`` seek.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from bitlake.expressions.java_regex import java_regex
from bitlake.expressions.terms import Typed
from bitlake.expressions.text_functions import separators, tokens_of
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op, Piece, Predicate, like_pieces


class TextUnit(enum.Enum):
    """The kind of the parts of a :class:`TextCondition`."""

    EXACT = "exact"
    """Substrings of the text."""
    LOWER = "lower"
    """Substrings of the text's lower case, in lower case themselves."""
    TOKEN = "token"
    """Tokens of the text (:mod:`bitlake.expressions.text_functions`)."""


@dataclass(frozen=True, slots=True)
class TextCondition:
    """For at least one of the alternatives, all parts occur in the text of ``column``.

    An alternative without parts holds for every text but NULL.
    """

    column: str
    unit: TextUnit
    alternatives: tuple[tuple[str, ...], ...]


def like_condition(column: str, pieces: tuple[Piece, ...], unit: TextUnit = TextUnit.EXACT) -> TextCondition:
    """Return the condition that every text that matches a LIKE pattern meets.

    >>> like_condition("s", like_pieces("%needle_in%")).alternatives
    (('needle', 'in'),)
    """
    return TextCondition(column, unit, (tuple(p for p in pieces if isinstance(p, str)),))


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
