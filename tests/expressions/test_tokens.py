from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from random_texts import random_text

from bitlake.expressions.text_functions import has_token, inner_tokens, token_regex, tokens_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("user_id=42, state: OK", ["user", "id", "42", "state", "OK"]),
        ("naïve 日本語。end", ["naïve", "日本語。end"]),
        ("", []),
        (" \t\n-_", []),
        ("a\x7fb\x00c", ["a", "b", "c"]),
        ("e\u0301t 😀", ["e\u0301t", "😀"]),
    ],
)
def test_tokens_of_a_text(text: str, tokens: list[str]) -> None:
    assert tokens_of(text) == tokens


def test_a_part_has_the_tokens_that_separators_enclose() -> None:
    assert inner_tokens("xx 42, state: O") == ["42", "state"]
    assert inner_tokens(" a ") == ["a"]
    assert inner_tokens("a") == inner_tokens("a b") == inner_tokens("") == []


@pytest.mark.parametrize("seed", range(20))
def test_a_token_is_found_in_the_texts_that_have_it(seed: int) -> None:
    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(60)]
    listed = sorted({t for text in texts if text and len(text) < 1000 for t in tokens_of(text)})
    for token in [*rng.sample(listed, min(8, len(listed))), "absent"]:
        expected = [None if text is None else token in tokens_of(text) for text in texts]
        assert has_token(pa.array(texts, pa.string()), token).to_pylist() == expected
        expression = re.compile(token_regex(token).replace(r"\z", r"\Z"))
        assert [None if t is None else bool(expression.search(t)) for t in texts] == expected
