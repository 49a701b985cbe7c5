from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from bitlake.codec.roaring import deserialize
from bitlake.fileindex.bsi import any_of, at_least, encode_slices, top


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=60),
    st.lists(st.integers(-2, 70), max_size=20),
    st.integers(1, 20),
)
def test_against_brute_force(values: list[int | None], numbers: list[int], k: int) -> None:
    held = np.array([-1 if v is None else v for v in values], np.int32)
    slices = [deserialize(s, 60)[0] for s in encode_slices(held, held >= 0, 5)]
    present = BitMap([i for i, v in enumerate(values) if v is not None])
    before = present.copy()
    assert set(any_of(slices, present, numbers)) == {i for i, v in enumerate(values) if v in numbers and v is not None}
    assert any_of(slices, present, range(32)) == present
    for n in numbers:
        assert set(at_least(slices, present, n)) == {i for i, v in enumerate(values) if v is not None and v >= n}
    if k < len(present):
        for largest in (True, False):
            sure, tied = top(slices, present, k, largest)
            ranked = sorted((v for v in values if v is not None), reverse=largest)
            assert len(sure) <= k <= len(sure) + len(tied) and not sure & tied
            assert sorted((values[i] for i in sure | tied), reverse=largest)[:k] == ranked[:k]
            if len(sure) + len(tied) > k:
                assert {values[i] for i in tied} == {ranked[k - 1]}
    assert present == before
