"""Conditions as Python values: ``col("status") == "NEW"``, lists of terms, and parameters of SQL text.

Every form becomes an unbound predicate tree (:mod:`bitlake.expressions.tree`), as SQL text does, so that all of them
plan and answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from bitlake.errors import InvalidRequest
from bitlake.expressions.literals import python_value
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import (
    And,
    Between,
    Comparison,
    In,
    IsNull,
    Like,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
    like_literal,
)

if TYPE_CHECKING:
    from bitlake.expressions.parameters import Args

Where: TypeAlias = "str | Condition | Sequence[Any] | Any"
"""A condition: SQL text, ``col(…) == …``, terms ``(column, operator, value)``, or a ``pyarrow.compute.Expression``."""


class Condition:
    """A condition on rows; combine conditions with ``&``, ``|`` and ``~``.

    >>> (col("status") == "NEW") & ~(col("amount") > 20)
    Condition(status = 'NEW' AND NOT (amount > 20))
    """

    __slots__ = ("predicate",)

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate

    def __repr__(self) -> str:
        return f"Condition({to_sql(self.predicate)})"

    def __and__(self, other: Condition) -> Condition:
        return Condition(And((self.predicate, _predicate(other, "&"))))

    def __or__(self, other: Condition) -> Condition:
        return Condition(Or((self.predicate, _predicate(other, "|"))))

    def __invert__(self) -> Condition:
        return Condition(Not(self.predicate))

    def __bool__(self) -> bool:
        raise InvalidRequest(
            "a condition has no truth value; combine conditions with &, | and ~ instead of and, or and not, "
            "each in parentheses, and write between(1, 5) for 1 <= x <= 5"
        )


class Column:
    """A column of a condition, by name; ``column["key"]`` is the value of a map's text key.

    Comparisons mean what they mean in Spark SQL: NULL compares with nothing, NaN is the largest number.

    >>> col("day") >= date(2026, 1, 2)
    Condition(day >= DATE '2026-01-02')
    """

    __slots__ = ("_name",)
    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"col({str(self._name)!r})"

    def __getitem__(self, key: Any) -> Column:
        if not isinstance(key, str) or isinstance(self._name, MapKey):
            raise InvalidRequest(f"{self!r}: only a map that is a column has a value, by a text key; not {key!r}")
        return Column(MapKey(self._name, key))

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compare(Op.EQ, value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._compare(Op.NE, value)

    def __lt__(self, value: object) -> Condition:
        return self._compare(Op.LT, value)

    def __le__(self, value: object) -> Condition:
        return self._compare(Op.LE, value)

    def __gt__(self, value: object) -> Condition:
        return self._compare(Op.GT, value)

    def __ge__(self, value: object) -> Condition:
        return self._compare(Op.GE, value)

    def isin(self, values: Any) -> Condition:
        """Whether the column equals one of these values.

        >>> col("status").isin(["NEW", "PAID"])
        Condition(status IN ('NEW', 'PAID'))
        """
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidRequest(f"{self!r}.isin takes a list of values, such as [{values!r}]")
        return Condition(In(self._name, tuple(_value(self, v, none="is_null()") for v in _listed(values))))

    def between(self, low: Any, high: Any) -> Condition:
        """Whether the column is from ``low`` to ``high``, both included.

        >>> col("amount").between(10, 50)
        Condition(amount BETWEEN 10 AND 50)
        """
        return Condition(Between(self._name, *(_value(self, v, none="is_null() or a comparison") for v in (low, high))))

    def is_null(self) -> Condition:
        """Whether the column is NULL.

        >>> col("status").is_null()
        Condition(status IS NULL)
        """
        return Condition(IsNull(self._name))

    def is_not_null(self) -> Condition:
        """Whether the column is not NULL.

        >>> col("status").is_not_null()
        Condition(status IS NOT NULL)
        """
        return Condition(IsNull(self._name, negated=True))

    def like(self, pattern: str, escape: str = "\\") -> Condition:
        """Whether text matches a pattern of SQL: ``%`` is any text, ``_`` one character.

        >>> col("status").like("P%")
        Condition(status LIKE 'P%')
        """
        if len(self._text(escape, "like")) != 1:
            raise InvalidRequest(f"{self!r}.like: escape is one character, and not {escape!r}")
        return Condition(Like(self._name, self._text(pattern, "like"), escape=escape))

    def startswith(self, text: str) -> Condition:
        """Whether text starts with ``text``.

        >>> col("status").startswith("P")
        Condition(status LIKE 'P%')
        """
        return Condition(Like(self._name, like_literal(self._text(text, "startswith")) + "%"))

    def endswith(self, text: str) -> Condition:
        """Whether text ends with ``text``.

        >>> col("status").endswith("D")
        Condition(status LIKE '%D')
        """
        return Condition(Like(self._name, "%" + like_literal(self._text(text, "endswith"))))

    def contains(self, text: str) -> Condition:
        """Whether text contains ``text``.

        >>> col("status").contains("AI")
        Condition(status LIKE '%AI%')
        """
        return Condition(Like(self._name, "%" + like_literal(self._text(text, "contains")) + "%"))

    def _compare(self, op: Op, value: object) -> Condition:
        return Condition(Comparison(self._name, op, _value(self, value, none="is_null() or is_not_null()")))

    def _text(self, value: Any, method: str) -> str:
        if not isinstance(value, str):
            raise InvalidRequest(f"{self!r}.{method} takes text, and not {value!r}")
        return value


def col(name: str) -> Column:
    """Name a column in a condition.

    >>> table.count(col("status") == "NEW")
    3
    >>> table.scan(where=col("amount").between(10, 50) & (col("day") < date(2026, 1, 2))).count()
    2
    """
    given: Any = name
    if not isinstance(given, str) or not given:
        raise InvalidRequest(f"a column is named by text, and not by {given!r}")
    return Column(name)


def _predicate(other: object, operator: str) -> Predicate:
    if not isinstance(other, Condition):
        raise InvalidRequest(
            f"{operator} takes two conditions, and not {other!r}; put each comparison in parentheses: "
            f'(col("a") == 1) {operator} (col("b") == 2)'
        )
    return other.predicate


def _value(column: Column, value: Any, none: str) -> Any:
    """A value to compare with, as Python has it."""
    if value is None:
        raise InvalidRequest(f"{column!r} is compared with None, which equals nothing; use {none}")
    if isinstance(value, Column | Condition):
        raise InvalidRequest(
            f"{column!r} is compared with {value!r}; compare columns with values, and two columns in SQL text"
        )
    try:
        return python_value(value)
    except ValueError as e:
        raise InvalidRequest(f"{column!r} is compared with {value!r}: {e}") from e


def _listed(values: Any) -> list[Any]:
    """The values of any sequence as Python's, converted at once where it is an array or a series."""
    kind = getattr(values, "dtype", None)
    if getattr(kind, "kind", None) == "M":  # datetime64
        return [python_value(v) for v in values]
    for name in ("to_pylist", "tolist", "to_list"):  # Arrow's, numpy's and pandas', Polars'
        convert: Callable[[], list[Any]] | None = getattr(values, name, None)
        if convert is not None:
            return convert()
    return list(values)


# --- lists of terms, as pyarrow and delta-rs take them ----------------------------------------------------------------

_OPERATORS: dict[str, Callable[[Column, Any], Condition]] = {
    "=": Column.__eq__,
    "==": Column.__eq__,
    "!=": Column.__ne__,
    "<>": Column.__ne__,
    "<": Column.__lt__,
    "<=": Column.__le__,
    ">": Column.__gt__,
    ">=": Column.__ge__,
    "in": Column.isin,
    "not in": lambda column, values: ~column.isin(values),
}


def from_terms(terms: Sequence[Any]) -> Predicate:
    """The predicate of a list of terms ``(column, operator, value)``, all of which hold, or of a list of such lists.

    Of several lists, at least one holds: the disjunctive normal form of ``pyarrow.parquet`` and delta-rs.  Operators
    are ``=``, ``==``, ``!=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``in`` and ``not in``.
    Raises :class:`InvalidRequest` for terms of another form.

    >>> to_sql(from_terms([[("a", "=", 1), ("b", "in", ["x", "y"])], [("c", ">", 2)]]))
    "a = 1 AND b IN ('x', 'y') OR c > 2"
    """
    if terms and all(isinstance(t, list) for t in terms):
        return Or(tuple(_all_hold(t) for t in terms))
    return _all_hold(terms)


def _all_hold(terms: Sequence[Any]) -> Predicate:
    if not terms:
        raise InvalidRequest("the list of conditions is empty; leave the condition out to select all rows")
    return And(tuple(_term(t) for t in terms))


def _term(term: Any) -> Predicate:
    if not isinstance(term, tuple) or len(term) != 3 or not all(isinstance(t, str) for t in term[:2]):
        raise InvalidRequest(
            f"invalid term {term!r} of a condition; expected (column, operator, value), such as ('status', '=', 'NEW')"
        )
    name, operator, value = term
    make = _OPERATORS.get(operator.lower())
    if make is None:
        raise InvalidRequest(f"unknown operator '{operator}' in {term!r}; expected {', '.join(_OPERATORS)}")
    return make(Column(name), value).predicate


# --- parameters of SQL text -------------------------------------------------------------------------------------------


def with_args(where: Where, args: Args | None) -> Where:
    """The condition with its parameters' values; raises :class:`InvalidRequest` for values of one that is not text."""
    if args is None:
        return where
    if not isinstance(where, str):
        raise InvalidRequest(f"args are the parameters of a condition in SQL text, and the condition is {where!r}")
    from bitlake.expressions.parameters import with_values  # brings sqlglot, which only SQL text needs

    return with_values(where, args)
