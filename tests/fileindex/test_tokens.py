from __future__ import annotations

import random

import pyarrow as pa
import pytest
from long import every, full, long
from random_texts import random_pattern, random_text

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.text_functions import TextCondition, TextUnit, tokens_of
from bitlake.expressions.tree import Comparison, In, Leaf, Like, Op, like_pieces
from bitlake.fileindex.ngram import NGRAM
from bitlake.fileindex.payload import LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.fileindex.tokens import TOKENS, CodesOfTokens, TokensReader
from bitlake.types import AtomicType, Root, parse_type

STRING = AtomicType(Root.VARCHAR, length=2147483647)
LINES = [f"2026-01-05 host{i % 7} INFO request_id={i:06d} done in {i % 90} ms" for i in range(4000)]


def build(texts: list[str | None], rows: int = 16) -> bytes:
    writer = TOKENS.writer(STRING, {"rows": str(rows)})
    writer.add(pa.array(texts, pa.string()))
    return writer.finish()


def reader_of(payload: bytes, rows: int) -> TokensReader:
    return TokensReader(STRING, lambda offset, n: payload[offset : offset + n], len(payload), rows)


def rows_of(selection: Selection | None, count: int) -> set[int]:
    return set(range(count)) if selection is None else set(selection.positions(count).tolist())


@pytest.mark.parametrize("seed", every(2, [*range(12), *map(long, range(12, full(90, 300)))]))
def test_no_row_with_the_tokens_is_skipped(seed: int) -> None:
    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(rng.randint(1, 150))]
    held = [None if t is None else set(tokens_of(t)) for t in texts]
    reader = reader_of(build(texts, rng.choice((1, 4, 64))), len(texts))
    listed = sorted(set().union(*(h for h in held if h is not None)) | {"absent"})
    for _ in range(40):
        some = tuple(rng.choices(listed, k=rng.randint(1, 3)))
        every = {i for i, h in enumerate(held) if h is not None and h.issuperset(some)}
        any_of = {i for i, h in enumerate(held) if h is not None and not h.isdisjoint(some)}
        assert every <= rows_of(reader.test_text(TextCondition("s", TextUnit.TOKEN, (some,))), len(texts))
        each = TextCondition("s", TextUnit.TOKEN, tuple((t,) for t in some))
        assert any_of <= rows_of(reader.test_text(each), len(texts))
        pattern = random_pattern(rng, texts)
        parts = tuple(p for p in like_pieces(pattern) if isinstance(p, str))
        holding = {i for i, t in enumerate(texts) if t is not None and all(p in t for p in parts)}
        assert holding <= rows_of(reader.test(Like("s", pattern)), len(texts)), pattern
        value = rng.choice([t for t in texts if t is not None] or [""])
        equal = {i for i, t in enumerate(texts) if t == value}
        assert equal <= rows_of(reader.test(In("s", (value, "x y"))), len(texts))


@pytest.mark.parametrize(
    "leaf",
    [
        Like("s", "%request_id=003210 done%"),
        Like("s", "2026%=003210 d%ms"),
        Comparison("s", Op.EQ, LINES[3210]),
        In("s", (LINES[3210], "no such line")),
    ],
)
def test_a_rare_token_leaves_few_blocks(leaf: Leaf) -> None:
    reader = reader_of(build(LINES), len(LINES))
    selection = reader.test(leaf)
    assert selection is not None and 3210 in selection.positions(len(LINES))
    assert selection.count(len(LINES)) <= 64
    assert reader.selectivity(leaf) == selection.count(len(LINES)) / len(LINES)


def test_a_token_that_no_row_has_skips_the_file() -> None:
    reader = reader_of(build(LINES), len(LINES))
    absent = ("OutOfMemoryError", "kubernetes", "004001")
    assert reader.test_text(TextCondition("s", TextUnit.TOKEN, (absent,))) == Selection.none()


@pytest.mark.parametrize(
    "leaf", [Like("s", "%request%"), Like("s", "%id=0032%"), Like("s", "% INFO %"), Like("s", "%", True)]
)
def test_parts_of_tokens_and_dense_tokens_prune_nothing(leaf: Leaf) -> None:
    reader = reader_of(build(LINES), len(LINES))
    assert reader.test(leaf) in (None, Selection.all())


@pytest.mark.parametrize("token", ["a\ufffd", "b\ud800"])
def test_tokens_of_characters_that_are_not_stored_are_not_looked_up(token: str) -> None:
    reader = reader_of(build(LINES), len(LINES))
    assert reader.test_text(TextCondition("s", TextUnit.TOKEN, ((token,),))) is None
    both = reader.test_text(TextCondition("s", TextUnit.TOKEN, ((token, "003210"),)))
    assert both == reader.test_text(TextCondition("s", TextUnit.TOKEN, (("003210",),)))


def test_blocks_that_are_longer_than_the_file_take_no_memory() -> None:
    payload = bytearray(build(["a", "b"], rows=2))
    payload[8:12] = (2**31 - 1).to_bytes(4, "big")
    selection = reader_of(bytes(payload), 2).test_text(TextCondition("s", TextUnit.TOKEN, (("absent",),)))
    assert selection == Selection.none()


def test_lower_case_is_not_looked_up() -> None:
    reader = reader_of(build(LINES), len(LINES))
    assert reader.test_text(TextCondition("s", TextUnit.LOWER, ((" 003210 ",),))) is None


def expected_codes(texts: list[str]) -> set[int]:
    """The codes as the format defines them, token by token."""
    codes = set()
    for token in (t.encode() for text in texts for t in tokens_of(text)):
        last, before = (int.from_bytes(part, "little") for part in (token[-8:], token[-16:-8]))
        codes.add((last * 0x9E3779B97F4A7C15 + before * 0xC2B2AE3D27D4EB4F) % 2**64 >> 42)
    return codes - {0}


@pytest.mark.parametrize("seed", range(6))
def test_codes_are_those_of_the_format(seed: int) -> None:
    rng, extractor = random.Random(seed), CodesOfTokens()
    for _ in range(60):
        texts = [t for t in (random_text(rng) for _ in range(rng.randint(0, 80))) if t is not None]
        cut = rng.randint(0, len(texts))
        column = pa.array(["in front", *texts], rng.choice((pa.string(), pa.large_string())))[1:]
        codes = extractor.codes([column[:cut], column[cut:]]).tolist()
        assert len(codes) == len(set(codes)) and set(codes) == expected_codes(texts)


def test_codes_are_of_whole_tokens() -> None:
    extractor = CodesOfTokens()
    assert set(extractor.codes([pa.array(["ab", "b a", "", "-", "xab", "ab-ab"])]).tolist()) == expected_codes(
        ["ab", "b", "a", "xab"]
    )
    words = ["FileNotFoundException", "IllegalStateException", "x" * 16, "x" * 15, "x" * 8 + "y" * 8]
    assert len(extractor.codes([pa.array(words)])) == len(words)
    assert extractor.codes([pa.array(["x" * 16])]) == extractor.codes([pa.array(["y" + "x" * 16])])


def test_many_distinct_tokens_share_the_slots_of_the_table() -> None:
    texts = [f"{i:x} {i * 7919:x}" for i in range(60_000)]
    codes = CodesOfTokens().codes([pa.array(texts)]).tolist()
    assert len(codes) == len(set(codes)) and set(codes) == expected_codes(texts)


def test_a_text_that_is_longer_than_a_window_has_the_codes_of_all_its_tokens() -> None:
    texts = [" ".join(f"t{i}" for i in range(200_000)), "last"]
    assert set(CodesOfTokens().codes([pa.array(texts)]).tolist()) == expected_codes(texts)


def test_a_payload_of_another_type_or_a_damaged_one_is_reported() -> None:
    payload = build(LINES)
    for field in range(20):
        damaged = bytearray(payload)
        damaged[field] ^= 0x80
        with pytest.raises(CorruptError):
            reader_of(bytes(damaged), len(LINES)).test(Like("s", "% 003210 %"))
    writer = NGRAM.writer(STRING, {})
    writer.add(pa.array(LINES))
    with pytest.raises(CorruptError, match="another version must be rebuilt: its parameter is 37"):
        reader_of(writer.finish(), len(LINES)).test(Like("s", "% 003210 %"))


def test_inspect_shows_the_version_of_the_tokens() -> None:
    payload = build(LINES)
    section = Section("payload")
    TOKENS.describe(section, LazyBytes(lambda o, n: payload[o : o + n], len(payload)), STRING, Page())
    assert section.children[0].facts["version of the tokens"] == 2
    assert not TOKENS.supports(parse_type("INT"))
    with pytest.raises(InvalidRequest, match="tokens takes STRING"):
        TOKENS.writer(parse_type("INT"), {})
