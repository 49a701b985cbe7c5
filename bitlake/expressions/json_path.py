"""``get_json_object``: the value at a path of names (``$.a.b``) of JSON texts, with Spark's meaning.

A batch of texts is one buffer, and each step runs over all of its bytes or tokens: which bytes are inside of strings,
the tokens, the object or array that each token is in, the grammar, and the keys of the path.  Spark (Jackson) reads the
first value of a text, so that what follows the root's ``}`` is ignored.  An error before it makes the result NULL.  Of
keys that occur twice, the first with a value that is not null counts.

Where Spark's result is not certain, the value is *unknown*: an object, an array, a number with a fraction, an exponent
or the form ``-0`` (which Spark formats again), text in single quotes outside of strings (which Spark accepts), and what
exceeds a limit of Jackson's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.codec.hashing import string_buffers
from bitlake.errors import EvaluationFailed
from bitlake.expressions.terms import STRING, Bound, Function, Refused, Typed
from bitlake.lazy_modules import compute as pc
from bitlake.types.datatypes import Root

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NAME = r"[\w-]+"
_PATH = re.compile(rf"\$(?:\.{_NAME}|\['{_NAME}'\])+")
_NAMES = re.compile(_NAME)
_CHUNK_BYTES = 2 << 20
"""Text that is read at a time: 64 MB take 1.5 times as long, because their arrays leave the processor's cache."""
_MOST_DEPTH, _MOST_NUMBER, _MOST_NAME, _MOST_TEXT = 1000, 1000, 50_000, 20_000_000
"""Jackson's limits: levels, and characters of a number, a name and a string."""

_SPACE, _OTHER, _OBJECT, _ARRAY, _OBJECT_END, _ARRAY_END, _COLON, _COMMA, _STRING, _SINGLE = range(10)
_CLASS = np.full(256, _OTHER, np.uint8)
for _characters, _class in ((b" \t\n\r", _SPACE), *((c.encode(), i) for i, c in enumerate("{[}]:,\"'", _OBJECT))):
    _CLASS[list(_characters)] = _class
_INSIDE = 16
"""Added to the class of a byte inside of a string, of which the opening quote is a part, and the closing one not."""
_IS_TOKEN = np.zeros(32, bool)
_IS_TOKEN[[_OBJECT, _ARRAY, _OBJECT_END, _ARRAY_END, _COLON, _COMMA, _SINGLE, _STRING + _INSIDE]] = True
_DEPTH = np.zeros(10, np.int64)
_DEPTH[[_OBJECT, _ARRAY]] = 1
_DEPTH[[_OBJECT_END, _ARRAY_END]] = -1

_IN_OBJECT, _IN_ARRAY, _KEY_NEXT, _ITEM_NEXT, _VALUE_NEXT, _COLON_NEXT, _COMMA_NEXT = range(7)
"""The states after a token, by what is expected next."""
_AFTER = np.array([0, _COMMA_NEXT, _IN_OBJECT, _IN_ARRAY, _COMMA_NEXT, _COMMA_NEXT, _VALUE_NEXT, 0, _COMMA_NEXT, 0])
_VALUES = (_OTHER, _OBJECT, _ARRAY, _STRING)
_ALLOWED = np.zeros((7, 10, 2), bool)
"""Whether a token of a kind may follow, inside of an object (0) or an array (1)."""
_ALLOWED[_IN_OBJECT, (_STRING, _OBJECT_END), 0] = True
_ALLOWED[_IN_ARRAY, (*_VALUES, _ARRAY_END), 1] = True
_ALLOWED[_KEY_NEXT, _STRING, 0] = True
_ALLOWED[_ITEM_NEXT, _VALUES, 1] = True
_ALLOWED[_VALUE_NEXT, _VALUES, 0] = True
_ALLOWED[_COLON_NEXT, _COLON, 0] = True
_ALLOWED[_COMMA_NEXT, (_COMMA, _OBJECT_END), 0] = True
_ALLOWED[_COMMA_NEXT, (_COMMA, _ARRAY_END), 1] = True

_SCALAR = r"^(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)$"
_PLAIN = r"^(?:true|false|0|-?[1-9][0-9]*)$"
"""Scalars that Spark returns as they are written."""

_ESCAPES = np.zeros(256, np.uint8)
_ESCAPES[list(b"\"'\\/bfnrtu")] = np.frombuffer(b"\"'\\/\b\f\n\r\tu", np.uint8)  # Spark accepts \', which JSON lacks
_HEX = np.full(256, -1, np.int64)
_HEX[list(b"0123456789abcdef")] = range(16)
_HEX[list(b"ABCDEF")] = range(10, 16)


def path_names(path: str) -> tuple[str, ...]:
    """Return the names of a path; raises :class:`Refused` for a path with anything else, such as ``[0]`` or ``*``.

    >>> path_names("$.user['id']")
    ('user', 'id')
    """
    if _PATH.fullmatch(path) is None:
        raise Refused(f"'{path}' is not a path of names, such as '$.a.b'")
    return tuple(_NAMES.findall(path))


def path_text(names: Sequence[str]) -> str:
    """Return the canonical text of a path.

    >>> path_text(("user", "id"))
    '$.user.id'
    """
    return "".join(("$", *(f".{name}" for name in names)))


def json_values(texts: pa.Array, names: Sequence[str]) -> tuple[pa.Array, Mask]:
    """Return the value at a path of each text as Spark's ``get_json_object`` does, and which ones are unknown."""
    offsets, data = string_buffers(texts.fill_null("") if texts.null_count else texts)
    if len(texts) == 0:
        return pa.array([], pa.string()), np.zeros(0, bool)
    values, unknown, first = [], [], 0
    while first < len(texts):
        last = int(np.searchsorted(offsets, offsets[first] + _CHUNK_BYTES, "right")) - 1
        last = min(max(last, first + 1), len(texts))
        starts = offsets[first : last + 1]
        found, doubtful = _Documents(data[starts[0] : starts[-1]], starts - starts[0]).values(names)
        values.append(found)
        unknown.append(doubtful)
        first = last
    made, doubts = pa.concat_arrays(values), np.concatenate(unknown)
    if texts.null_count:
        present = texts.is_valid()
        made, doubts = pc.if_else(present, made, None), doubts & present.to_numpy(zero_copy_only=False)
    return made, doubts


class _Documents:
    """The tokens of texts that lie one after the other, up to the end of each text's root object.

    ``position`` and ``end`` (of strings, the closing quote) are the token's bytes, ``depth`` the level it is on, and
    ``parent`` the token that opens the object or array that it is in.
    """

    def __init__(self, data: Bytes, starts: Ints) -> None:
        self.data = data
        self.starts = starts
        self.rows = len(starts) - 1
        self.unknown = np.zeros(self.rows, bool)
        self.invalid = np.zeros(self.rows, bool)
        self.escapes, code, other = _classified(data, starts)
        is_token = _IS_TOKEN[code]
        begins, ends = _runs(other, starts)
        is_token[begins] = True
        self.position = np.flatnonzero(is_token)
        self.kind = (code[self.position] & (_INSIDE - 1)).astype(np.uint8)
        self.end = self.position + 1
        self.end[self.kind == _OTHER] = ends
        quotes = np.flatnonzero((code & (_INSIDE - 1)) == _STRING)
        closing = np.append(quotes, len(data))[np.flatnonzero(code[quotes] >= _INSIDE) + 1]
        self.end[self.kind == _STRING] = closing
        self.row = np.searchsorted(starts, self.position, "right") - 1
        self._keep_roots()
        self.parent = self._parents()
        self._check_escapes()
        self._check_scalars()
        self.is_key = self._check_grammar()
        self.unknown[self.row[self.is_key & (self.end - self.position > _MOST_NAME)]] = True

    def _keep_roots(self) -> None:
        """Keep the tokens of root objects that end; other texts have no value, or an unknown one."""
        first = _firsts(self.row)
        step = _DEPTH[self.kind]
        level = np.cumsum(step)
        base = level[first] - step[first]
        level -= np.repeat(base, np.diff(np.append(first, len(level))))
        root_end = np.full(self.rows, -1)
        closing = np.flatnonzero((level <= 0) & (step < 0))
        firsts = closing[_firsts(self.row[closing])]
        root_end[self.row[firsts]] = firsts
        is_object = np.zeros(self.rows, bool)
        is_object[self.row[first]] = self.kind[first] == _OBJECT
        index = np.arange(len(level))
        open_ended = root_end[self.row] < 0
        within = is_object[self.row] & (open_ended | (index <= root_end[self.row]))
        length = self.end - self.position
        number, text = self.kind == _OTHER, self.kind == _STRING
        self.unknown[self.row[within & (self.kind == _SINGLE)]] = True
        self.unknown[self.row[within & (number & (length > _MOST_NUMBER) | text & (length > _MOST_TEXT))]] = True
        self.unknown[self.row[within & (level > _MOST_DEPTH)]] = True
        kept = within & ~open_ended & ~self.unknown[self.row]
        self.position, self.end = self.position[kept], self.end[kept]
        self.kind, self.row = self.kind[kept], self.row[kept]
        self.depth = (level - step)[kept]

    def _parents(self) -> Ints:
        """The token that opens what each token is in: the last one before it that opens its level."""
        opens = (self.kind == _OBJECT) | (self.kind == _ARRAY)
        # An opening token counts twice: on its own level, and as the head of the one that it opens.
        token = np.repeat(np.arange(len(self.kind)), 1 + opens)
        is_head = np.zeros(len(token), bool)
        is_head[np.cumsum(1 + opens)[opens] - 1] = True
        level = (self.depth[token] + is_head).astype(np.uint16)
        order = np.argsort(level, kind="stable")
        heads = is_head[order]
        last = np.maximum.accumulate(np.where(heads, np.arange(len(order)), 0))
        parent = np.zeros(len(self.kind), np.int64)
        parent[token[order[~heads]]] = token[order[last[~heads]]]
        return parent

    def _check_escapes(self) -> None:
        """Texts with an escape that JSON does not have are invalid; escapes outside of strings are found later."""
        ends = np.full(self.rows, -1)
        last = np.append(_firsts(self.row)[1:], len(self.row)) - 1
        if len(self.row):
            ends[self.row[last]] = self.position[last]
        row = np.searchsorted(self.starts, self.escapes, "right") - 1
        within = self.escapes < ends[row]
        at, row = self.escapes[within], row[within]
        following = self.data[at + 1]
        wrong = _ESCAPES[following] == 0
        unicode = following == ord("u")
        wrong[unicode] = _hex_at(self.data, at[unicode] + 2) < 0
        self.invalid[row[wrong]] = True

    def _check_scalars(self) -> None:
        scalars = np.flatnonzero(self.kind == _OTHER)
        matches = pc.match_substring_regex(_spans(self.data, self.position[scalars], self.end[scalars]), _SCALAR)
        self.invalid[self.row[scalars[~matches.to_numpy(zero_copy_only=False)]]] = True

    def _check_grammar(self) -> Mask:
        """Find the texts that are not JSON; return which tokens are keys."""
        if not len(self.kind):
            return np.zeros(0, bool)
        before = np.roll(self.kind, 1)
        within = (self.kind[self.parent] == _ARRAY).astype(np.int64)
        is_key: Mask = (self.kind == _STRING) & (within == 0) & ((before == _OBJECT) | (before == _COMMA))
        after = _AFTER[self.kind]
        after[self.kind == _COMMA] = np.where(within[self.kind == _COMMA], _ITEM_NEXT, _KEY_NEXT)
        after[is_key] = _COLON_NEXT
        allowed = _ALLOWED[np.roll(after, 1), self.kind, within]
        allowed[_firsts(self.row)] = True  # the root
        self.invalid[self.row[~allowed]] = True
        return is_key

    def values(self, names: Sequence[str]) -> tuple[pa.Array, Mask]:
        """The value at a path of each text, and which ones are unknown."""
        tokens = self._at(names)
        tokens = tokens[_firsts(self.row[tokens])]
        kind, row = self.kind[tokens], self.row[tokens]
        is_text = kind == _STRING
        found, lone = self._texts(self.position[tokens] + is_text, self.end[tokens])
        simple = pc.match_substring_regex(found, _PLAIN).to_numpy(zero_copy_only=False)
        doubtful = ~is_text & ~((kind == _OTHER) & simple)
        self.unknown[row[doubtful & ~self.invalid[row]]] = True
        at = np.full(self.rows, -1)
        at[row] = np.arange(len(row))
        at[row[lone]] = -1
        missing = (at < 0) | self.invalid | self.unknown
        return found.cast(pa.string()).take(pa.array(at, mask=missing)), self.unknown

    def _at(self, names: Sequence[str]) -> Ints:
        """The tokens at a path, in order, without values that are null."""
        holds = np.zeros(len(self.kind), bool)
        holds[_firsts(self.row)] = True
        keys = np.flatnonzero(self.is_key & ~self.invalid[self.row])
        values: Ints = np.zeros(0, np.int64)
        for name in names:
            mine = keys[holds[self.parent[keys]]]
            values = mine[self._named(mine, name)] + 2  # behind the colon
            holds = np.zeros(len(self.kind), bool)
            holds[values[self.kind[values] == _OBJECT]] = True
        found: Ints = values[(self.kind[values] != _OTHER) | (self.data[self.position[values]] != ord("n"))]
        return found

    def _named(self, keys: Ints, name: str) -> Mask:
        start, end = self.position[keys] + 1, self.end[keys]
        wanted = name.encode()
        is_escaped = np.searchsorted(self.escapes, end) > np.searchsorted(self.escapes, start)
        maybe = np.flatnonzero(is_escaped | (end - start == len(wanted)))
        texts, _ = self._texts(start[maybe], end[maybe])
        found = np.zeros(len(keys), bool)
        found[maybe] = pc.equal(texts, pa.scalar(wanted, texts.type)).to_numpy(zero_copy_only=False)
        return found

    def _texts(self, starts: Ints, ends: Ints) -> tuple[pa.Array, Mask]:
        """The values of strings, and which ones have a lone surrogate: Spark finds no value then."""
        found = _spans(self.data, starts, ends)
        lone = np.zeros(len(starts), bool)
        escaped = np.flatnonzero(np.searchsorted(self.escapes, ends) > np.searchsorted(self.escapes, starts))
        if len(escaped):
            plain, lone[escaped] = _unescaped(found.take(pa.array(escaped)))
            place = np.arange(len(starts))
            place[escaped] = len(starts) + np.arange(len(escaped))
            found = pa.concat_arrays([found, plain]).take(pa.array(place))
        return found, lone


def _classified(data: Bytes, starts: Ints) -> tuple[Ints, Bytes, Mask]:
    """The backslashes that escape, the class of each byte, and the bytes that are neither space nor punctuation."""
    classes = _CLASS[data]
    escapes = _escapes(data)
    escaped = escapes[escapes + 1 < len(data)] + 1
    classes[escaped[classes[escaped] == _STRING]] = _OTHER
    quotes = np.flatnonzero(classes == _STRING)
    toggles = np.zeros(len(data) + 1, np.uint8)
    toggles[quotes] = 1
    open_ended = np.diff(np.searchsorted(quotes, starts)) % 2 == 1
    np.add.at(toggles, starts[1:][open_ended], 1)  # the next text begins outside of a string
    inside = np.add.accumulate(toggles[:-1], dtype=np.uint8) & 1
    code = classes + inside * np.uint8(_INSIDE)
    return escapes, code, code == _OTHER


def _escapes(data: Bytes) -> Ints:
    """The backslashes that escape the byte behind them: every second one of those in a row."""
    found = np.flatnonzero(data == ord("\\"))
    index = np.arange(len(found))
    begins = np.ones(len(found), bool)
    begins[1:] = np.diff(found) != 1
    run = np.maximum.accumulate(np.where(begins, index, 0)) if len(found) else index
    escapes: Ints = found[(index - run) % 2 == 0]
    return escapes


def _runs(mask: Mask, starts: Ints) -> tuple[Ints, Ints]:
    """Where runs of TRUE begin and end; a run ends with its text."""
    before = np.zeros(len(mask) + 1, bool)
    before[1:] = mask
    before[starts] = False
    after = np.zeros(len(mask) + 1, bool)
    after[:-1] = mask
    after[starts] = False
    return np.flatnonzero(mask & ~before[:-1]), np.flatnonzero(mask & ~after[1:]) + 1


def _firsts(rows: Ints) -> Ints:
    """Where each row's entries begin."""
    changes = np.ones(len(rows), bool)
    changes[1:] = rows[1:] != rows[:-1]
    return np.flatnonzero(changes)


def _spans(data: Bytes, starts: Ints, ends: Ints) -> pa.Array:
    """Ascending spans of bytes that do not overlap."""
    if not len(starts):
        return pa.array([], pa.large_binary())
    offsets = np.stack((starts, ends), axis=1).ravel()
    count = len(offsets) - 1
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers).take(pa.array(np.arange(0, count, 2)))


def _hex_at(data: Bytes, at: Ints) -> Ints:
    """The numbers of four hexadecimal digits; -1 where one is missing."""
    padded = np.append(data, np.zeros(4, np.uint8))
    digits = [_HEX[padded[np.minimum(at, len(data)) + i]] for i in range(4)]
    made = digits[0] << 12 | digits[1] << 8 | digits[2] << 4 | digits[3]
    return np.where(np.minimum.reduce(digits) < 0, -1, made)


def _unescaped(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Texts with their escapes, which are valid, replaced; and which ones have a lone surrogate."""
    offsets, shared = string_buffers(texts)
    data = shared[offsets[0] : offsets[-1]].copy()
    offsets = offsets - offsets[0]
    escapes = _escapes(data)
    keep = np.ones(len(data), bool)
    keep[escapes] = False
    following = data[escapes + 1]
    unicode = escapes[following == ord("u")]
    code = _hex_at(data, unicode + 2)
    data[escapes + 1] = _ESCAPES[following]
    owner = np.searchsorted(offsets, unicode, "right") - 1
    high, low = code >> 10 == 0xD800 >> 10, code >> 10 == 0xDC00 >> 10
    paired = np.zeros(len(code), bool)
    paired[:-1] = high[:-1] & low[1:] & (unicode[1:] == unicode[:-1] + 6) & (owner[1:] == owner[:-1])
    second = np.roll(paired, 1)
    code[paired] = 0x10000 + (code[paired] - 0xD800 << 10) + (code[second] - 0xDC00)
    single = (high & ~paired) | (low & ~second)
    lone = np.zeros(len(texts), bool)
    lone[owner[single]] = True
    code[single] = ord("?")
    for i in range(6):
        keep[unicode + i] = False
    _write_utf8(data, keep, unicode[~second], code[~second])
    lengths = np.concatenate(([0], np.cumsum(keep)))[offsets]
    buffers = [None, pa.py_buffer(lengths.astype(np.int64)), pa.py_buffer(data[keep])]
    return pa.Array.from_buffers(pa.large_binary(), len(texts), buffers), lone


def _write_utf8(data: Bytes, keep: Mask, at: Ints, code: Ints) -> None:
    """Write characters as UTF-8 in place of their escapes, which are longer."""
    size = 1 + (code >= 0x80) + (code >= 0x800) + (code >= 0x10000)
    for count in range(1, 5):
        where, points = at[size == count], code[size == count]
        lead = (0, 0, 0xC0, 0xE0, 0xF0)[count]
        data[where] = lead | points >> 6 * (count - 1)
        keep[where] = True
        for i in range(1, count):
            data[where + i] = 0x80 | points >> 6 * (count - 1 - i) & 0x3F
            keep[where + i] = True


# --- the function -----------------------------------------------------------------------------------------------------


def _bind(arguments: Sequence[Typed], zone: str) -> Bound:
    text, path = arguments
    if text.root is not Root.VARCHAR:
        raise Refused(f"{text.sql} is {text.type}, and not a STRING")
    if not path.is_literal or not isinstance(path.parameter, str):
        raise Refused(f"{path.sql} is not a constant string")
    return [text], STRING, path_names(path.parameter)


def _kernel(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    values, unknown = json_values(arrays[0], term.parameter)
    if unknown.any():
        why = "an object, an array, a number with a fraction or exponent, or JSON in single quotes"
        raise EvaluationFailed(f"{term.sql}: only Spark can tell the value of some row: {why}")
    return values


JSON_FUNCTIONS: dict[str, Any] = {"get_json_object": Function(_bind, _kernel)}
