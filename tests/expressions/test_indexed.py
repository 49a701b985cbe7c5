"""Canonical names of indexed expressions, and predicates as indexes judge them."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions import indexed
from bitlake.expressions.binder import bind
from bitlake.expressions.indexed import expression_named, judged_by_indexes, parse_indexed, values_of, zone_of
from bitlake.expressions.parser import parse_predicate, renamed_columns
from bitlake.expressions.tree import And, Comparison, Computed, In, IndexedExpression, IsNull, MapKey, Op
from bitlake.types import DataField, parse_type
from bitlake.types.datatypes import AtomicType, MapType, Root, RowType

_CITY = RowType((DataField(10, "city", parse_type("STRING")), DataField(11, "zip code", parse_type("INT"))))
_MAP = MapType(parse_type("STRING"), parse_type("STRING"))
FIELDS = (
    DataField(0, "email", parse_type("STRING")),
    DataField(1, "n", parse_type("INT")),
    DataField(2, "price", parse_type("DECIMAL(10, 2)")),
    DataField(3, "day", parse_type("DATE")),
    DataField(4, "ts", parse_type("TIMESTAMP(6)")),
    DataField(5, "seen", parse_type("TIMESTAMP(6) WITH LOCAL TIME ZONE")),
    DataField(6, "addr", _CITY),
    DataField(7, "m", _MAP),
    DataField(8, "a b", parse_type("STRING")),
)


def expression(text: str, timezone: str = "UTC") -> IndexedExpression:
    indexed = parse_indexed(text, FIELDS, timezone)
    assert isinstance(indexed, IndexedExpression)
    return indexed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("lower(email)", "lower(email)"),
        (" LOWER( EMAIL ) ", "lower(email)"),
        ("lower(upper(email))", "lower(email)"),
        ("trim(`a b`)", "trim(`a b`)"),
        ("substring(email, 1, 3)", "substring(email, 1, 3)"),
        ("left(email, 2)", "left(email, 2)"),
        ("replace(email, '@', '\\'')", "replace(email, '@', '\\'')"),
        ("length(email)", "length(email)"),
        ("n % 10", "(n % 10)"),
        ("n * 2 + 1", "((n * 2) + 1)"),
        ("price * 2", "(price * 2)"),
        ("CAST(n AS STRING)", "CAST(n AS STRING)"),
        ("year(ts)", "year(ts)"),
        ("year(CAST(ts AS DATE))", "year(ts)"),
        ("year(day)", "year(day)"),
        ("hour(ts)", "hour(ts)"),
        ("hour(seen)", "hour(seen)@zone=UTC"),
        ("date_trunc('HOUR', seen)", "date_trunc('hour', seen)@zone=UTC"),
        ("date_trunc('mon', seen)", "date_trunc('month', seen)@zone=UTC"),
        ("CAST(seen AS DATE)", "CAST(seen AS DATE)@zone=UTC"),
        ("addr.city", "addr.city"),
        ("lower(addr.city)", "lower(addr.city)"),
        ("addr.`zip code`", "addr.`zip code`"),
        ("lower(m['k'])", "lower(m['k'])"),
        ("get_json_object(email, '$[\\'a\\'].b')", "get_json_object(email, '$.a.b')"),
        ("pmod(hash(email, n), 8)", "pmod(hash(email, n), 8)"),
        ("element(split(email, ' '))", "element(split(email, ' '))"),
        ("HASH(n) % 8", "(hash(n) % 8)"),
        ("concat(email, '@zone=UTC')", "concat(email, '@zone=UTC')"),
    ],
)
def test_the_name_is_canonical_and_names_the_same_expression(text: str, name: str) -> None:
    indexed = expression(text)
    assert indexed == name
    again = expression_named(str(indexed), FIELDS)
    assert again == indexed
    assert again is not None and again.type == indexed.type
    # What the name leads to computes the same as what was written.
    assert expression(str(indexed).removesuffix("@zone=UTC")) == indexed


def test_columns_and_map_values_are_no_expressions() -> None:
    assert parse_indexed("EMAIL", FIELDS, "UTC") == "email"
    assert parse_indexed("m['k']", FIELDS, "UTC") == MapKey("m", "k")


def test_zones_have_one_name() -> None:
    assert expression("hour(seen)", "+00:00") == expression("hour(seen)", "UTC")
    assert expression("hour(seen)", "+02:00") == "hour(seen)@zone=+02:00"
    berlin = expression("hour(seen)", "Europe/Berlin")
    assert berlin == "hour(seen)@zone=Europe/Berlin"
    assert zone_of(berlin) == "Europe/Berlin"
    assert zone_of(expression("hour(ts)", "Europe/Berlin")) is None
    assert expression_named("hour(seen)@zone=Europe/Berlin", FIELDS) == berlin
    assert expression_named("hour(seen)", FIELDS) is None


def test_a_function_of_another_version_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    old = expression("lower(email)")
    monkeypatch.setitem(indexed.VERSIONS, "lower", 2)
    new = expression("lower(email)")
    assert new == "lower(email)@lower=2"
    assert expression_named(str(new), FIELDS) == new
    assert expression_named(str(old), FIELDS) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("count(n)", r"'COUNT\(n\)' is not computed from one row"),
        ("n + lag(n)", r"'LAG\(n\)' is not computed from one row"),
        ("rand()", r"'RAND\(\)' has another value each time it is computed"),
        ("monotonically_increasing_id() + n", "has another value each time it is computed"),
        # Accepted once: the index had another name each day.
        ("datediff(ts, current_date())", "'CURRENT_DATE' has another value each time it is computed"),
        ("concat(email, current_user())", "has another value each time it is computed"),
        ("md5(email)", r"^an index cannot compute 'MD5\(email\)' \(.*that an index computes\)$"),
        ("CASE WHEN n > 1 THEN n END", "CASE cannot be indexed; an index may use"),
        ("lower('A')", "names no column"),
        ("addr", None),
        ("email = 'x'", "'=' cannot be indexed"),
        ("lower(email", r"expected \): line 1, column 7"),
        ("get_json_object(email, '$.a[0]')", "not a path of names"),
        ("get_json_object(email, email)", "not a constant string"),
        ("pmod(n, n)", "by a constant above 0"),
        ("hash(addr)", "no hash is computed"),
        ("lower(email) OVER ()", "is not computed from one row"),
        ("(SELECT 1)", "is not computed from one row"),
    ],
)
def test_what_no_index_can_be_of_is_refused(text: str, says: str | None) -> None:
    if says is None:
        assert parse_indexed(text, FIELDS, "UTC") == "addr"  # a column, whose type no index supports
        return
    with pytest.raises(InvalidRequest, match=says):
        parse_indexed(text, FIELDS, "UTC")


def test_a_text_about_clocks_is_a_constant_like_others() -> None:
    assert (
        parse_indexed("replace(email, 'now', 'current_date')", FIELDS, "UTC") == "replace(email, 'now', 'current_date')"
    )


def test_an_expression_is_pickled_with_its_term() -> None:
    indexed = expression("lower(email)")
    again = pickle.loads(pickle.dumps(indexed))
    assert (again, again.term, again.type) == (indexed, indexed.term, indexed.type)


def test_values_are_computed_once_for_each_value_of_a_dictionary() -> None:
    texts = pa.array(["A", "b", None, "a", "B"] * 4)
    indexed = expression("lower(email)")
    plain = values_of(indexed, pa.record_batch([texts], ["email"]))
    coded = values_of(indexed, pa.record_batch([texts.dictionary_encode()], ["email"]))
    assert plain.to_pylist() == ["a", "b", None, "a", "b"] * 4
    assert coded.to_pylist() == plain.to_pylist()
    assert coded.dictionary.to_pylist() == ["a", "b"]
    # A value that no row has may fail.
    words = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array(["1", "x"]))
    number = expression("CAST(email AS INT)")
    assert values_of(number, pa.record_batch([words], ["email"])).to_pylist() == [1, 1, 1]
    with pytest.raises(EvaluationFailed):
        values_of(number, pa.record_batch([words.dictionary], ["email"]))


def test_computed_tests_become_leaves_about_expressions() -> None:
    bound = bind(parse_predicate("lower(email) = 'x' AND length(email) IN (1, 2) AND n = 3 AND n < price"), FIELDS)
    judged = judged_by_indexes(bound)
    assert judged.exact
    assert isinstance(judged.predicate, And)
    kinds = {str(p.column): p for p in judged.predicate.children if not isinstance(p, Computed)}
    assert kinds["lower(email)"] == Comparison(expression("lower(email)"), Op.EQ, "x")
    assert kinds["length(email)"] == In(expression("length(email)"), (1, 2))
    assert kinds["n"] == Comparison("n", Op.EQ, 3)
    assert sum(isinstance(p, Computed) for p in judged.predicate.children) == 1
    negated = judged_by_indexes(
        bind(parse_predicate("NOT lower(email) = 'x' OR trim(email) IS NULL"), FIELDS)
    ).predicate
    assert negated.children == (  # type: ignore[union-attr]
        Comparison(expression("lower(email)"), Op.NE, "x"),
        IsNull(expression("trim(email)")),
    )


def test_renamed_columns() -> None:
    def rename(name: str) -> str | None:
        return {"email": "e mail", "gone": None}.get(name, name)

    assert renamed_columns("concat(email, addr.email, 'email')", rename) == "concat(`e mail`, addr.email, 'email')"
    assert renamed_columns("lower(n)", rename) == "lower(n)"
    assert renamed_columns("concat(n, gone)", rename) is None


def test_types_without_an_index() -> None:
    fields = (DataField(0, "c", AtomicType(Root.CHAR, length=3)),)
    with pytest.raises(InvalidRequest):
        parse_indexed("lower(c)", fields, "UTC")
