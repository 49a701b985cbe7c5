"""Row kinds as users give them: words or numbers, plain or as a dictionary, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.errors import InvalidRequest
from bitlake.schema.merge_spec import kind_codes

WORDS = ["+I", "-U", "+U", "-D"]
"""In the order of Paimon's RowKind: their codes are 0 to 3."""


@pytest.mark.parametrize(
    "kinds",
    [
        WORDS,
        pa.array(WORDS, pa.large_string()),
        pa.array(WORDS, pa.string_view()),
        pa.array(WORDS).dictionary_encode(),
        pa.chunked_array([WORDS[:1], WORDS[1:]]),
        [0, 1, 2, 3],
        pa.array([0, 1, 2, 3], pa.int8()),
        pa.array([0, 1, 2, 3], pa.uint64()),
    ],
    ids=lambda k: str(getattr(k, "type", type(k))),
)
def test_words_and_numbers(kinds: Any) -> None:
    codes = kind_codes("t", kinds)
    assert codes.dtype == np.int8 and codes.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "kinds", [[], pa.array([], pa.string()), pa.array([], pa.float64()), pa.chunked_array([], "u1")]
)
def test_no_rows(kinds: Any) -> None:
    codes = kind_codes("t", kinds)
    assert codes.dtype == np.int8 and codes.tolist() == []


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([0, 4], "invalid row kind 4"),
        ([-1], "invalid row kind -1"),
        (["+I", "+i"], r"invalid row kind \+i"),
        (["+I", None, None], "2 rows have no row kind"),
        ([1.0], "not double"),
        ([True], "not bool"),
    ],
)
def test_what_is_no_row_kind(kinds: list[Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"table 't': .*{said}"):
        kind_codes("t", kinds)
