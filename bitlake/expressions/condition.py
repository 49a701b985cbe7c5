"""Conditions as Python values: ``col("amount") * 2 > 15``, lists of terms, and parameters of SQL text.

Every form becomes an unbound predicate tree (:mod:`bitlake.expressions.tree`), as SQL text does, so that all of them
plan and answer alike.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from bitlake.errors import InvalidRequest
from bitlake.expressions.literals import python_value
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.term_binder import VALUE, BooleanTest, TermTest, term_sql
from bitlake.expressions.terms import CallTerm, CastTerm, ColumnTerm, IntervalTerm, LiteralTerm, Term, literal_type
from bitlake.expressions.tree import (
    And,
    Between,
    Comparison,
    Computed,
    In,
    IsNull,
    Leaf,
    Like,
    MapKey,
    Not,
    Op,
    Or,
    Predicate,
    like_literal,
)
from bitlake.types.time_zone import MICROS_PER_DAY

if TYPE_CHECKING:
    from bitlake.expressions.spark_dialect import Args

Where: TypeAlias = "str | Condition | Sequence[Any] | Any"
"""A condition: SQL text, ``col(…) == …``, terms ``(column, operator, value)``, or a ``pyarrow.compute.Expression``."""


_NO_TRUTH = (
    "combine conditions with &, | and ~ instead of and, or and not, each in parentheses, and write between(1, 5) for "
    "1 <= x <= 5"
)


class Condition:
    """A condition on rows; combine conditions with ``&``, ``|`` and ``~``.

    >>> (col("status") == "NEW") & ~(col("amount") > 20)
    Condition(status = 'NEW' AND NOT (amount > 20))
    """

    __slots__ = ("predicate",)
    __hash__ = None  # type: ignore[assignment]  # == is refused

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate

    def __repr__(self) -> str:
        return f"Condition({to_sql(self.predicate)})"

    def __and__(self, other: Condition | Column) -> Condition:
        return Condition(And((self.predicate, _predicate(other, "&"))))

    def __or__(self, other: Condition | Column) -> Condition:
        return Condition(Or((self.predicate, _predicate(other, "|"))))

    def __rand__(self, other: object) -> Condition:
        return Condition(And((_predicate(other, "&"), self.predicate)))

    def __ror__(self, other: object) -> Condition:
        return Condition(Or((_predicate(other, "|"), self.predicate)))

    def _compared(self, other: object) -> Any:
        raise InvalidRequest(
            f"{self!r} is compared with {other!r}; put each comparison in parentheses: "
            '(col("a") == 1) & (col("b") == 2)'
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __invert__(self) -> Condition:
        return Condition(Not(self.predicate))

    def __bool__(self) -> bool:
        raise InvalidRequest(f"a condition has no truth value; {_NO_TRUTH}")


class Column:
    """A column of a condition, or a value computed of columns; ``column["key"]`` is the value of a map's text key.

    Comparisons, arithmetic and functions mean what they mean in Spark SQL: NULL compares with nothing, NaN is the
    largest number, ``%`` has the sign of the number that is divided.  A BOOLEAN column is a condition itself.

    >>> col("day") >= date(2026, 1, 2)
    Condition(day >= DATE '2026-01-02')
    >>> col("amount") * 2 > col("order_id")
    Condition((amount * 2) > order_id)
    """

    __slots__ = ("term",)
    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __init__(self, term: str | Term) -> None:
        self.term = ColumnTerm(term) if isinstance(term, str) else term

    def __repr__(self) -> str:
        name = self._name
        return f"Column({term_sql(self.term)})" if name is None else f"col({str(name)!r})"

    @property
    def _name(self) -> str | None:
        """The name of a column that is not computed."""
        return self.term.name if isinstance(self.term, ColumnTerm) else None

    def __getitem__(self, key: Any) -> Column:
        name = self._name
        if not isinstance(key, str) or name is None or isinstance(name, MapKey):
            raise InvalidRequest(f"{self!r}: only a map that is a column has a value, by a text key; not {key!r}")
        return Column(MapKey(name, key))

    # --- a BOOLEAN column as a condition ------------------------------------------------------------------------------

    def __and__(self, other: Condition | Column) -> Condition:
        return condition_of(self) & other

    def __or__(self, other: Condition | Column) -> Condition:
        return condition_of(self) | other

    def __rand__(self, other: object) -> Condition:
        return Condition(_predicate(other, "&")) & self

    def __ror__(self, other: object) -> Condition:
        return Condition(_predicate(other, "|")) | self

    def __invert__(self) -> Condition:
        return ~condition_of(self)

    def __bool__(self) -> bool:
        raise InvalidRequest(f"{self!r} has no truth value; {_NO_TRUTH}")

    # --- comparisons --------------------------------------------------------------------------------------------------

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
        listed = _listed(values)
        if not _PLAIN_TYPES.issuperset(map(type, listed)):
            listed = [_value(self, v, none="is_null()") for v in listed]
        return self._leaf(lambda name: In(name, tuple(listed)))

    def between(self, low: Any, high: Any) -> Condition:
        """Whether the column is from ``low`` to ``high``, both included.

        >>> col("amount").between(10, 50)
        Condition(amount BETWEEN 10 AND 50)
        """
        name = self._name
        if name is None or isinstance(low, Column) or isinstance(high, Column):
            return self._compare(Op.GE, low) & self._compare(Op.LE, high)
        return Condition(Between(name, *(_value(self, v, none="is_null() or a comparison") for v in (low, high))))

    def is_null(self) -> Condition:
        """Whether the column is NULL.

        >>> col("status").is_null()
        Condition(status IS NULL)
        """
        return self._leaf(IsNull)

    def is_not_null(self) -> Condition:
        """Whether the column is not NULL.

        >>> col("status").is_not_null()
        Condition(status IS NOT NULL)
        """
        return self._leaf(lambda name: IsNull(name, negated=True))

    def like(self, pattern: str, escape: str = "\\") -> Condition:
        """Whether text matches a pattern of SQL: ``%`` is any text, ``_`` one character.

        >>> col("status").like("P%")
        Condition(status LIKE 'P%')
        """
        if len(self._text(escape, "like")) != 1:
            raise InvalidRequest(f"{self!r}.like: escape is one character, and not {escape!r}")
        return self._like(self._text(pattern, "like"), escape)

    def startswith(self, text: str) -> Condition:
        """Whether text starts with ``text``.

        >>> col("status").startswith("P")
        Condition(status LIKE 'P%')
        """
        return self._like(like_literal(self._text(text, "startswith")) + "%")

    def endswith(self, text: str) -> Condition:
        """Whether text ends with ``text``.

        >>> col("status").endswith("D")
        Condition(status LIKE '%D')
        """
        return self._like("%" + like_literal(self._text(text, "endswith")))

    def contains(self, text: str) -> Condition:
        """Whether text contains ``text``.

        >>> col("status").contains("AI")
        Condition(status LIKE '%AI%')
        """
        return self._like("%" + like_literal(self._text(text, "contains")) + "%")

    def ilike(self, pattern: str, escape: str = "\\") -> Condition:
        """Whether text matches a pattern of SQL, where upper and lower case are the same.

        >>> col("status").ilike("p%")
        Condition(lower(status) LIKE 'p%')
        """
        return self.lower().like(self._text(pattern, "ilike").lower(), escape)

    def rlike(self, pattern: str) -> Condition:
        """Whether a regular expression of Java matches part of a text.

        >>> col("status").rlike("^P.*D$")
        Condition(rlike(status, '^P.*D$'))
        """
        return self._test("rlike", self._text(pattern, "rlike"))

    def has_token(self, token: str) -> Condition:
        """Whether a text has a token: a run of letters and digits between other characters.

        >>> col("status").has_token("PAID")
        Condition(has_token(status, 'PAID'))
        """
        return self._test("has_token", self._text(token, "has_token"))

    def has_all_tokens(self, tokens: Sequence[str]) -> Condition:
        """Whether a text has all of these tokens.

        >>> col("status").has_all_tokens(["NEW", "PAID"])
        Condition(has_all_tokens(status, array('NEW', 'PAID')))
        """
        return self._test("has_all_tokens", *self._texts(tokens, "has_all_tokens"))

    def has_any_token(self, tokens: Sequence[str]) -> Condition:
        """Whether a text has at least one of these tokens.

        >>> col("status").has_any_token(["NEW", "PAID"])
        Condition(has_any_token(status, array('NEW', 'PAID')))
        """
        return self._test("has_any_token", *self._texts(tokens, "has_any_token"))

    # --- computed values ----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Column:
        return self._call("+", other)

    def __radd__(self, other: Any) -> Column:
        return Column(CallTerm("+", (_operand(self, other), self.term)))

    def __sub__(self, other: Any) -> Column:
        return self._call("-", other)

    def __rsub__(self, other: Any) -> Column:
        return Column(CallTerm("-", (_operand(self, other), self.term)))

    def __mul__(self, other: Any) -> Column:
        return self._call("*", other)

    def __rmul__(self, other: Any) -> Column:
        return Column(CallTerm("*", (_operand(self, other), self.term)))

    def __truediv__(self, other: Any) -> Column:
        return self._call("/", other)

    def __rtruediv__(self, other: Any) -> Column:
        return Column(CallTerm("/", (_operand(self, other), self.term)))

    def __mod__(self, other: Any) -> Column:
        return self._call("%", other)

    def __rmod__(self, other: Any) -> Column:
        return Column(CallTerm("%", (_operand(self, other), self.term)))

    def __neg__(self) -> Column:
        return self._call("negative")

    def __abs__(self) -> Column:
        return self.abs()

    def cast(self, type: str) -> Column:
        """The value as another type, by the name that Spark SQL has for it; a value that does not fit is an error.

        >>> col("amount").cast("int") == 25
        Condition(CAST(amount AS INT) = 25)
        """
        from bitlake.expressions.term_parser import parse_cast_type  # brings sqlglot, which only SQL text needs

        return Column(CastTerm(self.term, parse_cast_type(self._text(type, "cast"))))

    def abs(self) -> Column:
        """The absolute value of a number.

        >>> col("amount").abs() > 5
        Condition(abs(amount) > 5)
        """
        return self._call("abs")

    def lower(self) -> Column:
        """Text in lower case.

        >>> col("status").lower() == "new"
        Condition(lower(status) = 'new')
        """
        return self._call("lower")

    def upper(self) -> Column:
        """Text in upper case.

        >>> col("status").upper() == "NEW"
        Condition(upper(status) = 'NEW')
        """
        return self._call("upper")

    def trim(self) -> Column:
        """Text without the spaces at both ends.

        >>> col("status").trim() == "NEW"
        Condition(trim(status) = 'NEW')
        """
        return self._call("trim")

    def length(self) -> Column:
        """The number of characters of text, or of bytes of a binary.

        >>> col("status").length() > 3
        Condition(length(status) > 3)
        """
        return self._call("length")

    def substring(self, start: int, length: int | None = None) -> Column:
        """A part of a text; the first character is at 1, and a negative ``start`` counts from the end.

        >>> col("status").substring(1, 2) == "PA"
        Condition(substring(status, 1, 2) = 'PA')
        """
        return self._call("substring", start) if length is None else self._call("substring", start, length)

    def year(self) -> Column:
        """The year of a date or timestamp; comparisons with it prune.

        >>> col("day").year() == 2026
        Condition(year(day) = 2026)
        """
        return self._call("year")

    def month(self) -> Column:
        """The month of a date or timestamp, from 1 to 12.

        >>> col("day").month() == 1
        Condition(month(day) = 1)
        """
        return self._call("month")

    def day(self) -> Column:
        """The day of the month of a date or timestamp, from 1 to 31.

        >>> col("day").day() == 2
        Condition(day(day) = 2)
        """
        return self._call("day")

    def hour(self) -> Column:
        """The hour of a timestamp, from 0 to 23.

        >>> col("ts").hour() < 12
        Condition(hour(ts) < 12)
        """
        return self._call("hour")

    def date_trunc(self, unit: str) -> Column:
        """The start of the year, month, day, hour, … that a timestamp is in; comparisons with it prune.

        >>> col("ts").date_trunc("month") >= "2026-01-01"
        Condition(date_trunc('MONTH', ts) >= '2026-01-01')
        """
        return Column(CallTerm("date_trunc", (_operand(self, self._text(unit, "date_trunc").upper()), self.term)))

    def coalesce(self, *others: Any) -> Column:
        """The first of these values that is not NULL.

        >>> col("status").coalesce("NEW") == "NEW"
        Condition(coalesce(status, 'NEW') = 'NEW')
        """
        return self._call("coalesce", *others)

    def _call(self, function: str, *others: Any) -> Column:
        return Column(CallTerm(function, (self.term, *(_operand(self, o) for o in others))))

    def _test(self, function: str, *texts: str) -> Condition:
        return Condition(Computed(BooleanTest(CallTerm(function, (self.term, *(_operand(self, t) for t in texts))))))

    def _compare(self, op: Op, value: object) -> Condition:
        if isinstance(value, Column):
            return Condition(Computed(BooleanTest(CallTerm(op.value, (self.term, value.term)))))
        literal = _value(self, value, none="is_null() or is_not_null()")
        return self._leaf(lambda name: Comparison(name, op, literal))

    def _like(self, pattern: str, escape: str = "\\") -> Condition:
        return self._leaf(lambda name: Like(name, pattern, escape=escape))

    def _leaf(self, make: Callable[[str], Leaf]) -> Condition:
        """A condition on the column, or on the value that is computed."""
        name = self._name
        return Condition(Computed(TermTest(self.term, make(VALUE))) if name is None else make(name))

    def _text(self, value: Any, method: str) -> str:
        if not isinstance(value, str):
            raise InvalidRequest(f"{self!r}.{method} takes text, and not {value!r}")
        return value

    def _texts(self, values: Any, method: str) -> list[str]:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidRequest(f"{self!r}.{method} takes a list of texts, such as ['a', 'b'], and not {values!r}")
        return [self._text(value, method) for value in values]


def _operand(column: Column, value: Any) -> Term:
    """Return the other operand of a computation: another column, a time span, or a constant."""
    if isinstance(value, Column):
        return value.term
    if isinstance(value, Condition):
        raise InvalidRequest(f"{column!r} is computed with {value!r}; expected a column or a value")
    try:
        plain = python_value(value)
    except ValueError as e:
        raise InvalidRequest(f"{column!r} is computed with {value!r}: {e}") from e
    if isinstance(plain, dt.timedelta):
        micros = plain // dt.timedelta(microseconds=1)
        days, rest = divmod(micros, MICROS_PER_DAY)
        return IntervalTerm(0, micros, f"INTERVAL '{micros}' MICROSECOND" if rest else f"INTERVAL '{days}' DAY")
    kind = literal_type(plain)
    if kind is None and plain is not None:
        raise InvalidRequest(f"{column!r} is computed with {value!r}, for which Spark SQL has no constant")
    return LiteralTerm(plain, kind)


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
    """The tree of a condition, or of a BOOLEAN column; raises :class:`InvalidRequest` for anything else."""
    if not isinstance(other, Condition | Column):
        raise InvalidRequest(
            f"{operator} takes two conditions, and not {other!r}; put each comparison in parentheses: "
            f'(col("a") == 1) {operator} (col("b") == 2)'
        )
    return condition_of(other).predicate


def condition_of(value: Condition | Column) -> Condition:
    """Return a condition as it is; for a BOOLEAN column, the condition that it is true."""
    return value if isinstance(value, Condition) else value == True  # noqa: E712


def _value(column: Column, value: Any, none: str) -> Any:
    """A value to compare with, as Python has it."""
    if value is None:
        raise InvalidRequest(f"{column!r} is compared with None, which equals nothing; use {none}")
    if isinstance(value, Column | Condition):
        raise InvalidRequest(f"{column!r} is compared with {value!r}; expected a value")
    try:
        return python_value(value)
    except ValueError as e:
        raise InvalidRequest(f"{column!r} is compared with {value!r}: {e}") from e


_PLAIN_TYPES = frozenset({str, bytes, bool, int, float, dt.date, dt.time, dt.datetime})
"""Types whose values :func:`_value` returns as they are."""


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
    from bitlake.expressions.spark_dialect import with_values  # brings sqlglot, which only SQL text needs

    return with_values(where, args)
