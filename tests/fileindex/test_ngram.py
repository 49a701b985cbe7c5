from __future__ import annotations

import hashlib
import itertools
import random
import re

import numpy as np
import pyarrow as pa
import pytest
from long import every, exhaustive, full, long
from random_texts import random_needle, random_pattern, random_text

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.expressions.text_functions import TextCondition, TextUnit
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op, like_pieces, like_regex
from bitlake.fileindex import ngram
from bitlake.fileindex.block_signature import text_bytes
from bitlake.fileindex.ngram import NGRAM, NgramReader
from bitlake.fileindex.payload import LazyBytes, Page, Section
from bitlake.fileindex.selection import Selection
from bitlake.types import AtomicType, Root, parse_type

STRING = AtomicType(Root.VARCHAR, length=2147483647)
OPTIONS = {"rows": "4"}


def build(texts: list[str | None] | pa.Array, options: dict[str, str] | None = None) -> bytes:
    writer = NGRAM.writer(STRING, OPTIONS if options is None else options)
    writer.add(pa.array(texts, pa.string()))
    return writer.finish()


def reader_of(payload: bytes, rows: int) -> NgramReader:
    return NgramReader(STRING, lambda offset, n: payload[offset : offset + n], len(payload), rows)


def matching(texts: list[str | None], pattern: str, *, lower: bool = False) -> set[int]:
    # Between two %, the first place is as good as any: to try others took a minute for some seeds.
    first, *parts = like_regex(like_pieces(pattern)).removesuffix(r"\z").split(".*")
    middle = "".join(f"(?>.*?{p})" for p in parts[:-1])
    expression = re.compile(first + middle + "".join(f".*{p}" for p in parts[-1:]) + r"\Z")
    fold = str.lower if lower else str
    return {i for i, t in enumerate(texts) if t is not None and expression.match(fold(t))}


def rows_of(selection: Selection | None, count: int) -> set[int]:
    return set(range(count)) if selection is None else set(selection.positions(count).tolist())


@pytest.mark.parametrize("seed", every(2, [*range(12), *map(long, range(12, full(90, 400)))]))
def test_no_matching_row_is_skipped(seed: int) -> None:
    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(rng.randint(1, 150))]
    options = {"rows": str(rng.choice((1, 3, 8, 64))), "n": str(rng.randint(3, 8)), "step": str(rng.choice((1, 2)))}
    reader = reader_of(build(texts, options), len(texts))
    for _ in range(60):
        pattern = random_pattern(rng, texts)
        selected = rows_of(reader.test(Like("s", pattern)), len(texts))
        assert matching(texts, pattern) <= selected, pattern
        assert rows_of(reader.test(Like("s", pattern, negated=True)), len(texts)) == set(range(len(texts)))
        pieces = like_pieces(pattern.lower())
        needles = tuple(p for p in pieces if isinstance(p, str))
        selection = reader.test_text(TextCondition("s", TextUnit.LOWER, (needles,)))
        assert matching(texts, pattern.lower(), lower=True) <= rows_of(selection, len(texts)), pattern
        value = rng.choice([t for t in texts if t is not None] or [""])
        equal = {i for i, t in enumerate(texts) if t == value}
        other = random_needle(rng, texts)
        assert equal <= rows_of(reader.test(Comparison("s", Op.EQ, value)), len(texts))
        assert equal <= rows_of(reader.test(In("s", (other, value))), len(texts))


LINES = [f"2026-01-05 host{i % 7} INFO request {i:06d} done, 日本語 {'ÄÖ' * (i % 3)}" for i in range(4000)]


@pytest.mark.parametrize(
    "leaf",
    [
        Like("s", "%request 003210%"),
        Like("s", "%003210 d_ne%"),
        Like("s", "2026% 003210 %日本語%"),
        Comparison("s", Op.EQ, LINES[3210]),
        In("s", (LINES[3210], "another text")),
    ],
)
@pytest.mark.parametrize(("step", "most_rows"), [("1", 64), ("2", 640)])
def test_a_rare_needle_leaves_few_blocks(leaf: Leaf, step: str, most_rows: int) -> None:
    reader = reader_of(build(LINES, {"rows": "16", "step": step}), len(LINES))
    selection = reader.test(leaf)
    assert selection is not None and 3210 in selection.positions(len(LINES))
    assert selection.count(len(LINES)) <= most_rows
    assert reader.selectivity(leaf) == selection.count(len(LINES)) / len(LINES)


def test_a_needle_that_no_row_has_skips_the_file() -> None:
    reader = reader_of(build(LINES, {"rows": "16"}), len(LINES))
    assert reader.test(Like("s", "%OutOfMemoryError%")) == Selection.none()


@pytest.mark.parametrize(
    "leaf", [Like("s", "%requ%"), Like("s", "%"), Like("s", "_____"), Like("s", "%request%", True)]
)
def test_a_short_a_dense_or_a_negated_needle_prunes_nothing(leaf: Leaf) -> None:
    reader = reader_of(build(LINES, {"rows": "16"}), len(LINES))
    assert reader.test(leaf) in (None, Selection.all())


@pytest.mark.parametrize("at", [1000, 1001, 1002, 1003])
def test_with_step_2_a_needle_is_found_at_each_offset_and_must_be_longer_than_a_gram(at: int) -> None:
    digits = hashlib.shake_256(b"digits").hexdigest(20_000)
    reader = reader_of(
        build([digits[i : i + 40] for i in range(0, 40_000, 40)], {"rows": "1", "step": "2", "size-share": "0.9"}), 1000
    )
    assert reader.test(Like("s", f"%{digits[at : at + 5]}%")) is None
    for size in (6, 7, 12):
        selection = reader.test(Like("s", f"%{digits[at : at + size]}%"))
        assert selection is not None and at // 40 in selection.positions(1000)
        assert selection.count(1000) < (200 if size < 12 else 20)


def test_other_conditions_are_not_evaluated() -> None:
    reader = reader_of(build(LINES), len(LINES))
    assert reader.test(IsNull("s")) is None
    assert reader.test(Comparison("s", Op.GT, "request")) is None


def test_case_that_leaves_ascii_is_folded() -> None:
    texts = ["\u212aELVIN degrees", "\u0130STANBUL city", "Straße", "nothing else"]
    reader = reader_of(build(texts, {"rows": "1"}), 4)
    for row, needle in ((0, "kelvin"), (1, "i\u0307stanbul"), (1, "stanbul c")):
        assert needle in texts[row].lower()
        selection = reader.test_text(TextCondition("s", TextUnit.LOWER, ((needle,),)))
        assert row in rows_of(selection, 4), needle


def test_a_text_with_a_character_that_stands_for_invalid_bytes_prunes_only_around_it() -> None:
    reader = reader_of(build(["abc?defghi", "other text"], {"rows": "1"}), 2)
    assert rows_of(reader.test(Like("s", "%abc\ufffddefghi%")), 2) == {0}


def test_nulls_and_texts_without_grams_are_in_no_block() -> None:
    reader = reader_of(build([None, None, "", "ab", "abcdefg"], {"rows": "2"}), 5)
    assert rows_of(reader.test(Like("s", "%abcdefg%")), 5) == {4}


@pytest.mark.parametrize("step", ["1", "2"])
@pytest.mark.parametrize("n", ["3", "5", "8"])
def test_grams_do_not_cross_rows(n: str, step: str) -> None:
    rows = ["abcdefgh", "x", "", "yz", "ijklmnopq", "rstuvw", "0123456789"]
    reader = reader_of(build(rows, {"rows": "8", "n": n, "step": step}), len(rows))
    for needle in ("defghxyzi", "hxyzijklm", "xyzijklmn", "klmnopqrs", "opqrstuvw", "tuvw01234", "uvw012345"):
        assert reader.test(Like("s", f"%{needle}%")) == Selection.none(), needle


@pytest.mark.parametrize("options", [{}, {"step": "2"}, {"step": "2", "rows": "64"}])
def test_the_payload_depends_on_the_rows_alone(options: dict[str, str]) -> None:
    array = pa.array([None, *LINES, None], pa.string())
    whole = build(array, options)
    writer = NGRAM.writer(STRING, options)
    cuts = [0, 1, 700, 701, 2500, len(array)]
    parts = [array.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    writer.add(parts[0].cast(pa.large_string()))
    writer.add(pa.chunked_array([p.dictionary_encode() for p in parts[1:3]]).unify_dictionaries())
    writer.add(pa.chunked_array([parts[3].cast(pa.string_view())]))
    writer.add(parts[4])
    assert writer.finish() == whole


STORED = {  # SHA-256 of payloads of MIXED, by the bytes of a gram and the step
    (3, 1): "96455605ec1c7f2b",
    (3, 2): "d91a6d637cc30d7c",
    (4, 1): "b59272e5cad490ad",
    (4, 2): "2db0e00c603cbce4",
    (5, 1): "485bfbc669306fd2",
    (5, 2): "a6581801851193f5",
    (6, 1): "67745d5fec4468ee",
    (6, 2): "b5eb66cd3a43cfdd",
    (7, 1): "1a88a74eb9176116",
    (7, 2): "1ee4e0ba5998e487",
    (8, 1): "e4b94949f2e0a868",
    (8, 2): "a3a7b7c3f630439f",
}
MIXED = [None if i % 97 == 0 else f"{line} \u0130stanbul"[: i % 80] for i, line in enumerate(LINES)]


@pytest.mark.parametrize(("n", "step"), STORED)
def test_the_codes_of_stored_indexes_do_not_change(n: int, step: int) -> None:
    payload = build(MIXED, {"n": str(n), "step": str(step), "rows": "64"})
    assert hashlib.sha256(payload).hexdigest()[:16] == STORED[n, step]


@pytest.mark.parametrize("window", [exhaustive(8), 20, exhaustive(64)])
def test_the_payload_does_not_depend_on_windows(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", "ab", *MIXED[:300], "x" * 200, "y"]
    for n, step in itertools.product("34568", "12"):
        options = {"n": n, "rows": "64", "step": step}
        whole = build(texts, options)
        with monkeypatch.context() as context:
            context.setattr(ngram, "_WINDOW", window)
            assert build(texts, options) == whole


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("n", range(3, 9))
def test_a_block_has_the_codes_of_its_grams(n: int, step: int) -> None:
    texts = ["Größe 12", "", "x", "A0b1C2d3E4f5G6h7I8j9", "ab", "日本語テキスト", "end of text"]
    writer = NGRAM.writer(STRING, {"n": str(n), "step": str(step), "rows": "8"})
    writer.add(pa.array(texts))
    writer.finish()
    expected, start = set(), 0
    for text in texts:
        folded = text.encode().lower()  # of bytes: ASCII alone
        for i in range(-start % step, len(folded) - n + 1, step):
            gram = int.from_bytes(folded[i : i + n], "little")
            expected.add((gram * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 46)
        start += len(folded)
    assert set(writer._codes.of_block(0).tolist()) == expected  # type: ignore[attr-defined]


def test_rows_of_a_block_are_chosen_by_the_text() -> None:
    short = NgramReader(STRING, *_opened(build(["x" * 10] * 200_000, {})), 200_000)
    long = NgramReader(STRING, *_opened(build(["y" * 100_000] * 30, {})), 30)
    assert short.head.block_rows == 4096
    assert long.head.block_rows == 2


def _opened(payload: bytes) -> tuple:
    return lambda offset, n: payload[offset : offset + n], len(payload)


@pytest.mark.parametrize("share", ["0.05", "0.01"])
def test_the_size_is_bounded_by_the_share_of_the_text(share: str) -> None:
    rng = np.random.default_rng(3)
    digits = pa.array([bytes(row).hex() for row in rng.integers(0, 256, (20_000, 40), dtype=np.uint8)])
    payload = build(digits, {"size-share": share})
    assert len(payload) <= float(share) * text_bytes(digits)
    assert len(payload) > 0.9 * float(share) * text_bytes(digits)


def test_a_column_of_few_grams_takes_less_than_the_bound() -> None:
    lines = pa.array([f"state {i % 5} of the machine" for i in range(50_000)])
    assert len(build(lines, {})) < 0.005 * text_bytes(lines)


def test_only_the_signature_rows_of_the_needle_are_fetched() -> None:
    rng = np.random.default_rng(4)
    digits = [bytes(row).hex() for row in rng.integers(0, 256, (50_000, 40), dtype=np.uint8)]
    payload = build(digits, {"rows": "256"})
    fetched: list[int] = []

    def fetch(offset: int, n: int) -> bytes:
        fetched.append(n)
        return payload[offset : offset + n]

    reader = NgramReader(STRING, fetch, len(payload), len(digits))
    selection = reader.test(Like("s", f"%{digits[4321][10:40]}%"))
    assert selection is not None and 4321 in selection.positions(len(digits))
    assert selection.count(len(digits)) < 0.1 * len(digits)
    assert len(payload) > 150_000 and sum(fetched) < 70_000
    assert reader.bytes_to_read(Like("s", "%x%"), 10**9, len(digits)) < 200_000


def test_no_text_has_an_index_of_no_row() -> None:
    payload = build([], {})
    assert reader_of(payload, 0).test(Like("s", "%needle%")) == Selection.none()


@pytest.mark.parametrize("step", ["1", "2"])
def test_a_payload_is_checked_against_the_rows(step: str) -> None:
    payload = build(LINES, {"rows": "64", "step": step})
    writer = NGRAM.writer(STRING, {"rows": "64", "step": step})
    writer.add(pa.array(LINES))
    other = NGRAM.writer(STRING, {"rows": "64", "step": str(3 - int(step))})
    other.add(pa.array(LINES))
    assert other.check(payload) is None  # type: ignore[attr-defined]
    assert writer.check(payload) is None  # type: ignore[attr-defined]
    head = reader_of(payload, len(LINES)).head
    wiped = payload[: head.matrix_at] + bytes(len(payload) - head.matrix_at)
    assert writer.check(wiped) == "it denies codes that 63 of 63 blocks of rows hold"  # type: ignore[attr-defined]


@pytest.mark.parametrize("field", range(20))
def test_a_damaged_head_is_reported(field: int) -> None:
    payload = bytearray(build(LINES, {"rows": "64"}))
    payload[field] ^= 0x80
    reader = reader_of(bytes(payload), len(LINES))
    with pytest.raises(CorruptError):
        reader.test(Like("s", "%request 003210%"))


def test_a_truncated_payload_is_reported() -> None:
    payload = build(LINES, {"rows": "64"})
    for size in [*range(40), len(payload) // 2, len(payload) - 1]:
        with pytest.raises(CorruptError):
            reader_of(payload[:size], len(LINES)).test(Like("s", "%request 003210%"))
    with pytest.raises(CorruptError):
        reader_of(payload, len(LINES) + 1).test(Like("s", "%request 003210%"))


def test_damaged_dense_codes_are_reported() -> None:
    payload = bytearray(build(LINES, {"rows": "64"}))
    payload[20:24] = b"\xff" * 4
    with pytest.raises(CorruptError):
        reader_of(bytes(payload), len(LINES)).test(Like("s", "%request 003210%"))


def test_inspect_shows_the_parts() -> None:
    payload = build(LINES, {"rows": "64"})
    section = Section("payload")
    lazy = LazyBytes(lambda offset, n: payload[offset : offset + n], len(payload))
    NGRAM.describe(section, lazy, STRING, Page())
    head, dense, rows = section.children
    assert head.facts["blocks"] == 63
    assert (head.facts["bytes of a gram"], head.facts["step"]) == (5, 2)
    assert dense.facts["codes"] > 0 and rows.size is not None and rows.offset is not None
    assert rows.offset + rows.size == len(payload)
    assert NGRAM.stored_rows(lazy) == len(LINES)


@pytest.mark.parametrize("kind", ["CHAR(5)", "INT", "BYTES"])
def test_only_text_is_taken(kind: str) -> None:
    assert not NGRAM.supports(parse_type(kind))
    with pytest.raises(InvalidRequest, match="ngram takes STRING and VARCHAR"):
        NGRAM.writer(parse_type(kind), {})


@pytest.mark.parametrize(
    ("option", "value"), [("n", "2"), ("n", "9"), ("step", "3"), ("rows", "0"), ("size-share", "1.5")]
)
def test_a_bad_option_is_refused(option: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=option):
        NGRAM.writer(STRING, {option: value})
