"""Unions of sketches: the bytes that Paimon (Java) makes of the same values; damage; the package not there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlake.codec.sketches import sketch_union
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.lazy_modules import install_command

datasketches = pytest.importorskip("datasketches")
GOLDEN = Path(__file__).parents[1] / "data" / "sketches.txt"


@functools.cache
def sketch_of(kind: str, low: int, high: int) -> bytes:
    """A sketch of the numbers from low to high."""
    made = datasketches.update_theta_sketch() if kind == "theta" else datasketches.hll_sketch(12)
    for i in range(low, high):
        made.update(i)
    data: bytes = made.compact().serialize() if kind == "theta" else made.serialize_compact()
    return data


@pytest.mark.parametrize("kind", ["theta", "hll"])
def test_unions_are_java_s_byte_for_byte(kind: str) -> None:
    unite = sketch_union(f"{kind}_sketch")
    checked = 0
    for line in GOLDEN.read_text().splitlines():
        name, *numbers, wanted = line.split()
        if name == kind:
            a, b, c, d = map(int, numbers)
            found = unite(sketch_of(kind, a, b), sketch_of(kind, c, d))
            assert found is not None and hashlib.sha256(found).hexdigest() == wanted, line
            assert unite(found, sketch_of(kind, c, d)) is not None
            checked += 1
    assert checked == 67


def test_null_is_nothing() -> None:
    unite = sketch_union("theta_sketch")
    assert unite(None, None) is None
    assert unite(b"x", None) == unite(None, b"x") == b"x"


@given(st.sampled_from(["theta", "hll"]), st.integers(0, 40), st.binary(max_size=4), st.integers(0, 300))
def test_damage_is_an_error_or_another_sketch(kind: str, at: int, junk: bytes, cut: int) -> None:
    good = sketch_of(kind, 0, 30)
    bad = (good[:at] + junk + good[at + len(junk) :])[: len(good) - cut % 7]
    with contextlib.suppress(CorruptError):
        sketch_union(f"{kind}_sketch")(good, bad)


def test_without_the_package_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(UnsupportedFeature, match=re.escape(install_command("sketches"))):
        sketch_union("hll_sketch")
