from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bitlake.expressions.java_regex import java_regex
from bitlake.expressions.terms import Refused


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("needle", ("needle",)),
        (r"user=\d+ failed( twice)?", ("user=", " failed")),
        ("^abc.def$", ("abc", "def")),
        ("colou?r", ("colo", "r")),
        ("ab+c", ("ab", "c")),
        ("ab*c", ("a", "c")),
        ("ab{2,3}c", ("ab", "c")),
        ("ab{0,3}c", ("a", "c")),
        ("ab??c", ("a", "c")),
        ("a|b", ()),
        ("(abc|abd)x", ("x",)),
        ("(?:needle)", ()),
        (r"a\.b\[c", ("a.b[c",)),
        ("a[xy]b", ("a", "b")),
        ("日本+語", ("日本", "語")),
        ("😀x?y", ("😀", "y")),
        ("", ()),
        (r"a\tb", ("a\tb",)),
    ],
)
def test_literals_are_in_every_match(pattern: str, literals: tuple[str, ...]) -> None:
    assert java_regex(pattern).literals == literals


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^\d{2}:\d{2}", ["12:30:01"], ["at 12:30", "1:30"]),
        ("a.c", ["xabc", "a😀c"], ["a\nc", "a\rc", "a\u0085c", "a\u2028c", "ac"]),
        ("abc$", ["abc", "abc\n", "abc\r\n", "abc\u2029"], ["abc\n\n", "abcd", "abc\n\r"]),
        (r"a\sb", ["a b", "a\x0bb", "a\tb"], ["a\u00a0b", "ab"]),
        ("[^a-c]x", ["dx", "\nx"], ["ax", "x"]),
        (r"[\w.-]+@", ["a.b-c_1@"], ["ä@", "@"]),
        ("x{2}", ["axxb"], ["axbx"]),
        ("(a|bc)+d", ["abcd", "ad"], ["d", "bd"]),
        (r"\Sx", ["äx"], [" x", "x"]),
        ("ä[ö-ü]", ["äö", "äü"], ["ä", "äu"]),
    ],
)
def test_an_expression_matches_as_in_java(pattern: str, matching: list[str], other: list[str]) -> None:
    matches = pc.match_substring_regex(pa.array(matching + other), java_regex(pattern).re2)
    assert matches.to_pylist() == [True] * len(matching) + [False] * len(other)


@pytest.mark.parametrize(
    "pattern",
    ["(?i)abc", r"\bword\b", r"\p{L}", r"(a)\1", "a++", "(?<=a)b", "(?=a)", "[a[b]]", "[a&&b]", r"\Qa\E", "a$b", r"\s$"]
    + ["(", "a)", "*a", "[a", "a{2", "a{,3}", "a{1001}", "a{3,2}", "x\\", "^*", "a**", "[z-a]", r"\u0041", "(?<n>a)"]
    + ["[]a]", "{a}", "a|$", "(" * 60 + ")" * 60],
)
def test_what_may_differ_from_java_is_refused(pattern: str) -> None:
    with pytest.raises(Refused):
        java_regex(pattern)
