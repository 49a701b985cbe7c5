"""Parts of predicate trees: terms, columns, and the values that terms name."""

from __future__ import annotations

import pickle

import pytest

from bitlake.expressions.tree import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    MapKey,
    Not,
    Op,
    Or,
    all_of,
    columns_of,
    computed_tests,
    conjuncts,
    has_computed,
    like_pieces,
    like_prefix,
    named_values,
    sources_of,
    terms_on,
)

A, B = Comparison("a", Op.EQ, 1), IsNull("b")
OF_MAP = Comparison(MapKey("m", "k"), Op.GT, 2)


def test_terms_are_those_of_nested_ands() -> None:
    assert conjuncts(And((A, And((B, Or((A, B))))))) == (A, B, Or((A, B)))
    assert conjuncts(A) == (A,) and conjuncts(Not(A)) == (Not(A),)
    assert conjuncts(TRUE) == conjuncts(And(())) == conjuncts(And((TRUE, TRUE))) == ()
    assert conjuncts(FALSE) == (FALSE,) and conjuncts(Constant(None)) == (Constant(None),)
    assert all_of([A]) == A and all_of([A, B]) == And((A, B)) and all_of([]) == And(())


def test_columns_and_what_must_be_read_for_them() -> None:
    tree = And((A, Not(Or((B, OF_MAP))), TRUE))
    assert columns_of(tree) == {"a", "b", MapKey("m", "k")}
    assert sources_of(tree) == {"a", "b", "m"}
    assert columns_of(TRUE) == columns_of(And(())) == frozenset()


def test_terms_on_columns_speak_of_nothing_else() -> None:
    both = Or((A, B))
    tree = And((A, B, both, TRUE, OF_MAP, FALSE))
    assert terms_on(tree, ["a"]) == (A,)
    assert terms_on(tree, ["a", "b", "c"]) == (A, B, both)
    assert terms_on(tree, ["m"]) == (OF_MAP,)
    assert terms_on(tree, []) == terms_on(None, ["a"]) == ()


def test_the_fewest_values_that_a_term_names() -> None:
    three, two = In("a", (1, 2, 3)), In("a", (7, 8))
    assert named_values([A], "a") == (1,) and named_values([three], "a") == (1, 2, 3)
    assert named_values([three, two], "a") == named_values([two, three], "a") == (7, 8)
    assert named_values([three, A, two], "a") == (1,)
    for op in Op:
        if op is not Op.EQ:
            assert named_values([Comparison("a", op, 1)], "a") is None
    others = [
        In("a", (1, 2), negated=True),
        In("b", (1,)),
        Comparison("b", Op.EQ, 1),
        Like("a", "x"),
        IsNull("a"),
        Not(A),
    ]
    assert named_values(others, "a") is None and named_values([], "a") is None
    assert named_values([*others, three], "a") == (1, 2, 3)
    assert named_values([In("a", ()), A], "a") == ()


def test_leaves_are_not_negated_unless_they_say_so() -> None:
    assert not In("a", (1,)).negated and not IsNull("a").negated and not Like("a", "x").negated
    assert (TRUE.value, FALSE.value) == (True, False)


@pytest.mark.parametrize(
    ("pattern", "prefix", "is_all"),
    [
        *(("", "", False), ("a", "a", False), ("a%", "a", True), ("ab%%", "ab", True), ("a_", "a", False)),
        *(("a%_", "a", False), ("a%b", "a", False), ("a%b%", "a", False), ("%", "", True), ("%%", "", True)),
        *(("_", "", False), ("%a", "", False), ("_%", "", False), ("\\%a%", "%a", True)),
    ],
)
def test_the_text_that_all_matches_of_a_pattern_start_with(pattern: str, prefix: str, is_all: bool) -> None:
    """All that starts with the prefix matches: the empty pattern and others ask for more."""
    assert like_prefix(like_pieces(pattern, "\\")) == (prefix, is_all)


@pytest.mark.parametrize("join", [And, Or])
def test_what_all_files_ask_of_many_terms_is_derived_once(join: type[And] | type[Or]) -> None:
    terms = tuple(And((Comparison("a", Op.EQ, i), Comparison("c", Op.EQ, i))) for i in range(50))
    predicate = join(terms)
    assert columns_of(predicate) == {"a", "c"} and not has_computed(predicate)
    assert columns_of(predicate) is columns_of(predicate)
    assert computed_tests(predicate) is computed_tests(predicate)
    again = pickle.loads(pickle.dumps(predicate))
    assert again == predicate and not again.derived
