"""Regular expressions of Java, as RLIKE takes them: translated to RE2 where both mean the same, with their literals.

Supported are literals, ``.``, ``^``, a final ``$``, classes without nested ones, the escapes
``\\d \\w \\s \\t \\n \\r \\f`` and those of punctuation, groups, alternatives, and greedy and lazy quantifiers.
Refused is what RE2 lacks (look-around, back-references, possessive quantifiers) and what differs by the version of Java
or Unicode (flags, ``\\b``, ``\\p``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import pyarrow as pa

from bitlake.expressions.terms import Refused
from bitlake.lazy_modules import compute as pc

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_LINE_ENDS}]"
_END = rf"(?:\r\n|[{_LINE_ENDS}])?\z"
_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\x0b\f\r"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_META = frozenset("\\()[]{}|*+?.^$")
_MOST_REPEATS = 1000
_MOST_GROUPS = 50


@dataclass(frozen=True, slots=True)
class JavaRegex:
    """An expression: as RE2 text, and texts that every match contains (none empty)."""

    re2: str
    literals: tuple[str, ...]


@functools.lru_cache(256)
def java_regex(pattern: str) -> JavaRegex:
    """Translate an expression; raises :class:`Refused` with the reason for one whose matches could differ.

    >>> java_regex(r"user=\\d+ failed( twice)?").literals
    ('user=', ' failed')
    >>> java_regex("a|b").literals
    ()
    """
    parser = _Parser(pattern)
    text, literals, _ = parser.alternatives(outer=True)
    if parser.at < len(pattern):
        raise Refused(f"')' at {parser.at + 1} closes no group")
    try:
        pc.match_substring_regex(pa.array([], pa.string()), text)
    except pa.ArrowInvalid as e:
        raise Refused(f"RE2 does not take the regular expression '{pattern}': {e}") from e
    return JavaRegex(text, tuple(literal for literal in literals if literal))


@dataclass(slots=True)
class _Atom:
    """One part of a sequence; ``ends_line``: whether a match of it can end with a carriage return."""

    re2: str
    literal: str | None = None
    ends_line: bool = False


@dataclass(slots=True)
class _Parser:
    pattern: str
    at: int = 0
    depth: int = field(default=0)

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        c = self.peek()
        if not c:
            raise Refused(f"the regular expression '{self.pattern}' ends early")
        self.at += 1
        return c

    def alternatives(self, outer: bool) -> tuple[str, list[str], bool]:
        """Alternatives up to a closing bracket or the end, and the literals that all matches contain.

        The third value: whether a match can end with a carriage return.
        """
        if self.depth > _MOST_GROUPS:
            raise Refused("the groups of a regular expression are nested too deeply")
        text, literals, ends_line = self.sequence(outer)
        parts = [text]
        while self.peek() == "|":
            self.at += 1
            text, _, may_end = self.sequence(outer)
            parts.append(text)
            literals, ends_line = [], ends_line or may_end
        return "|".join(parts), literals, ends_line

    def sequence(self, outer: bool) -> tuple[str, list[str], bool]:
        out: list[str] = []
        literals = [""]
        before: _Atom | None = None
        while (c := self.peek()) and c not in "|)":
            if c == "$":
                self.final_dollar(outer, before)
                return "".join([*out, _END]), literals, True
            atom = self.atom()
            least, quantifier = self.quantifier()
            if quantifier and c == "^":
                raise Refused("'^' is not repeated")
            out.append(f"{atom.re2}{quantifier}")
            if atom.literal is not None and not quantifier:
                literals[-1] += atom.literal
            else:
                # What is repeated ends a literal: with it if it occurs at least once.
                literals[-1] += (atom.literal or "") if least else ""
                literals.append("")
            atom.ends_line |= least == 0
            before = atom
        return "".join(out), literals, before is None or before.ends_line

    def final_dollar(self, outer: bool, before: _Atom | None) -> None:
        """Take ``$``, which is also before a final line end; refused where what it follows can match part of that."""
        self.at += 1
        if not outer or self.peek() or before is None or before.ends_line:
            raise Refused("'$' is only taken at the end, after what matches no line end")

    def atom(self) -> _Atom:
        c = self.take()
        match c:
            case "(":
                return self.group()
            case "[":
                return self.klass()
            case ".":
                return _Atom(_ANY)
            case "^":
                return _Atom("^")
            case "\\":
                return self.escape()
        if c in _META:
            raise Refused(f"'{c}' at {self.at} of the regular expression '{self.pattern}' repeats nothing")
        return _Atom(_quoted(c), c, c == "\r")

    def group(self) -> _Atom:
        if self.peek() == "?":
            if self.pattern[self.at : self.at + 2] != "?:":
                raise Refused("groups with flags, names or look-around are not taken")
            self.at += 2
        self.depth += 1
        text, _, ends_line = self.alternatives(outer=False)
        self.depth -= 1
        if self.take() != ")":
            raise Refused("a group is not closed")
        return _Atom(f"(?:{text})", ends_line=ends_line)

    def escape(self) -> _Atom:
        c = self.take()
        if c in _CLASSES:
            return _Atom(f"[{_CLASSES[c]}]", ends_line=c == "s")
        if c.lower() in _CLASSES:
            return _Atom(f"[^{_CLASSES[c.lower()]}]", ends_line=True)
        c = self.escaped(c)
        return _Atom(_quoted(c), c, c == "\r")

    def escaped(self, c: str) -> str:
        if c in _CONTROLS:
            return _CONTROLS[c]
        if not c.isascii() or c.isalnum():
            raise Refused(f"'\\{c}' in a regular expression is not taken")
        return c

    def klass(self) -> _Atom:
        negated = self.peek() == "^"
        self.at += negated
        parts: list[str] = []
        ends_line = negated
        while (c := self.take()) != "]" or not parts:
            if c in "[]&":
                raise Refused("classes of a regular expression are not nested, and have no '&' or first ']'")
            if c == "\\":
                c = self.take()
                if c in _CLASSES:
                    parts.append(_CLASSES[c])
                    ends_line |= c == "s"
                    if self.peek() == "-":
                        raise Refused("a class does not end a range")
                    continue
                c = self.escaped(c)
            high = self.range_end(c)
            ends_line |= c <= "\r" <= high
            parts.append(_quoted(c) if high == c else f"{_quoted(c)}-{_quoted(high)}")
        return _Atom(f"[{'^' if negated else ''}{''.join(parts)}]", ends_line=ends_line)

    def range_end(self, low: str) -> str:
        """The last character of the range that a character begins; the character itself if it begins none."""
        if self.peek() != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return low
        self.at += 1
        high = self.take()
        if high == "\\":
            high = self.escaped(self.take())
        elif high in "[&":
            raise Refused("classes of a regular expression are not nested")
        if high < low:
            raise Refused(f"the range '{low}-{high}' of a regular expression is empty")
        return high

    def quantifier(self) -> tuple[int, str]:
        """The least repetitions, and the quantifier as written; empty if there is none."""
        start, c, least = self.at, self.peek(), 1
        if c in ("*", "+", "?"):
            self.at += 1
            least = int(c == "+")
        elif c == "{":
            end = self.pattern.find("}", self.at)
            bounds = self.pattern[self.at + 1 : end].split(",") if end > 0 else []
            numbers = [int(b) for b in bounds if b.isascii() and b.isdigit() and len(b) < 5]
            if (
                len(bounds) not in (1, 2)
                or len(numbers) < len([b for b in bounds if b])
                or not bounds[0]
                or numbers != sorted(numbers)
            ):
                raise Refused(f"'{self.pattern[start:]}' is not a quantifier")
            if max(numbers) > _MOST_REPEATS:
                raise Refused(f"a regular expression repeats at most {_MOST_REPEATS} times")
            self.at = end + 1
            least = numbers[0]
        else:
            return 1, ""
        if self.peek() == "?":
            self.at += 1
        if self.peek() and self.peek() in "*+?{":
            raise Refused("possessive and repeated quantifiers are not taken")
        return least, self.pattern[start : self.at]


def _quoted(c: str) -> str:
    """A character as RE2 takes it, inside and outside of classes."""
    return c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}"
