from __future__ import annotations

import itertools

import numpy as np
import pytest
from pyroaring import BitMap

from bitlake.errors import InvalidRequest
from bitlake.fileindex.selection import ALL, NONE, ROWS, Selection

N = 6
SOME = [
    Selection.all(),
    Selection.all(exact=True),
    Selection.none(),
    Selection.of(BitMap([1, 2]), True),
    Selection.of(BitMap([2, 5]), False),
    Selection.of(BitMap(), False),
]


def rows(s: Selection) -> set[int]:
    return set(s.positions(N).tolist())


def test_kinds() -> None:
    assert [s.kind for s in SOME] == [ALL, ALL, NONE, ROWS, ROWS, NONE]
    assert [s.count(N) for s in SOME] == [6, 6, 0, 2, 2, 0]
    assert [s.is_empty for s in SOME] == [False, False, True, False, False, True]
    assert all(s.exact for s in SOME if s.is_empty)
    assert SOME[0].positions(3).dtype == np.int64


@pytest.mark.parametrize(("a", "b"), list(itertools.product(SOME, SOME)))
def test_algebra_keeps_the_promise(a: Selection, b: Selection) -> None:
    assert rows(a & b) == rows(a) & rows(b)
    assert rows(a | b) == rows(a) | rows(b)
    # Whatever the true rows of an inexact side are, an exact result must not depend on them.
    for truth_a in [rows(a)] if a.exact else [rows(a), set(), {2}]:
        for truth_b in [rows(b)] if b.exact else [rows(b), set(), {2}]:
            assert truth_a & truth_b <= rows(a & b) and (not (a & b).exact or truth_a & truth_b == rows(a & b))
            assert truth_a | truth_b <= rows(a | b) and (not (a | b).exact or truth_a | truth_b == rows(a | b))


def test_two_answers_to_one_question_are_exact_when_one_is() -> None:
    exact, loose = Selection.of(BitMap([2]), True), Selection.of(BitMap([1, 2]), False)
    assert exact.both(loose) == exact == loose.both(exact)
    assert Selection.all().both(loose) == loose
    assert loose.both(Selection.none()).is_empty


def test_minus() -> None:
    gone = BitMap([2, 3])
    assert rows(Selection.all(True).minus(gone, N)) == {0, 1, 4, 5}
    assert Selection.all(True).minus(gone, N).exact
    assert rows(Selection.of(BitMap([2, 5]), False).minus(gone)) == {5}
    assert Selection.of(BitMap([2]), False).minus(gone).is_empty
    assert Selection.all().minus(BitMap()).kind is ALL
    with pytest.raises(InvalidRequest):
        Selection.all().minus(gone)
