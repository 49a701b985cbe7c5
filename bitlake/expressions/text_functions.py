"""Functions of strings and binaries, with Spark's meaning: positions count code points, ``trim`` takes spaces alone.

``lower`` and ``upper`` use Unicode's full mappings (``ß`` becomes ``SS``; a final ``Σ`` becomes ``ς``), evaluated once
per distinct value where text is not ASCII.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bitlake.errors import EvaluationFailed
from bitlake.expressions.terms import INT, STRING, Bound, Function, Refused, Typed
from bitlake.lazy_modules import compute as pc
from bitlake.types.datatypes import BINARIES, Root


def _text(term: Typed) -> Typed:
    if term.root is not Root.VARCHAR:
        raise Refused(f"{term.sql} is {term.type}, and not a STRING")
    return term


def _constant(term: Typed, kind: type[Any]) -> Any:
    value = term.parameter if term.is_literal else None
    if type(value) is not kind:
        raise Refused(f"{term.sql} is not a constant {'number' if kind is int else 'string'}")
    return value


def _of_text(kernel: Callable[[pa.Array], pa.Array]) -> Function:
    """A function from STRING to STRING."""

    def bind(arguments: Sequence[Typed], zone: str) -> Bound:
        (a,) = arguments
        return [_text(a)], STRING, None

    return Function(bind, lambda term, arrays, rows: kernel(arrays[0]))


def _of_case(kernel: Callable[[pa.Array], pa.Array]) -> Function:
    """LOWER or UPPER: of another one only the outer counts, as Spark's optimizer has it."""

    def bind(arguments: Sequence[Typed], zone: str) -> Bound:
        (a,) = arguments
        while a.function in ("lower", "upper"):
            (a,) = a.arguments
        return [_text(a)], STRING, None

    return Function(bind, lambda term, arrays, rows: kernel(arrays[0]))


_NEWER_UPPER = frozenset("\u019b\u0264\ua7d3\ua7d5")
"""Letters that have had an upper case since Unicode 16 and 17."""


def _known(text: str) -> str:
    """A text whose case this Python's Unicode knows; Spark's is Unicode 17."""
    for c in text:
        if unicodedata.category(c) == "Cn" or (c in _NEWER_UPPER and c.upper() == c):
            raise EvaluationFailed(f"the case of {c!r} (U+{ord(c):04X}) is of a newer Unicode than this Python has")
    return text


def _mapped(ascii_kernel: str, each: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    def kernel(array: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(array)).as_py() is not False:
            return pc.call_function(ascii_kernel, [array])
        encoded = array.dictionary_encode()
        values = pa.array([each(_known(text)) for text in encoded.dictionary.to_pylist()], array.type)
        return values.take(encoded.indices)

    return kernel


def _bind_length(arguments: Sequence[Typed], zone: str) -> Bound:
    (a,) = arguments
    if a.root in BINARIES:
        return arguments, INT, None
    return [_text(a)], INT, None


def _length(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (a,) = arrays
    return pc.binary_length(a) if term.arguments[0].root in BINARIES else pc.utf8_length(a)


def _byte_length(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.binary_length(arrays[0])


def _bind_concat(arguments: Sequence[Typed], zone: str) -> Bound:
    return [_text(a) for a in arguments], STRING, None


def _concat(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.binary_join_element_wise(*arrays, "", null_handling="emit_null")


def _bind_substring(arguments: Sequence[Typed], zone: str) -> Bound:
    a, *numbers = arguments
    start, *length = (_constant(n, int) for n in numbers)
    return [_text(a)], STRING, (start, length[0] if length else None)


def _substring(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (a,) = arrays
    start, length = term.parameter
    if length is not None and length <= 0:
        return pc.utf8_slice_codeunits(a, 0, 0)
    if start >= 0:
        begin = max(start - 1, 0)
        return pc.utf8_slice_codeunits(a, begin, None if length is None else begin + length)
    if length is None or start + length >= 0:
        return pc.utf8_slice_codeunits(a, start)
    return pc.utf8_slice_codeunits(a, start, start + length)


def _bind_side(arguments: Sequence[Typed], zone: str) -> Bound:
    a, count = arguments
    return [_text(a)], STRING, max(0, _constant(count, int))


def _left(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    return pc.utf8_slice_codeunits(arrays[0], 0, term.parameter)


def _right(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    count = term.parameter
    return pc.utf8_slice_codeunits(arrays[0], -count) if count else pc.utf8_slice_codeunits(arrays[0], 0, 0)


def _bind_replace(arguments: Sequence[Typed], zone: str) -> Bound:
    a, sought, *put = arguments
    return [_text(a)], STRING, (_constant(sought, str), _constant(put[0], str) if put else "")


def _replace(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    sought, put = term.parameter
    return pc.replace_substring(arrays[0], sought, put) if sought else arrays[0]


def _bind_position(arguments: Sequence[Typed], zone: str) -> Bound:
    a, sought = arguments
    return [_text(a)], INT, _constant(sought, str)


def _position(term: Typed, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
    (a,) = arrays
    if not term.parameter:
        return pc.if_else(a.is_valid(), pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
    at = pc.find_substring(a, term.parameter)  # in bytes
    if pc.all(pc.string_is_ascii(a)).as_py() is not False:
        return pc.add(at, 1)
    split = pc.split_pattern(a, term.parameter, max_splits=1)
    before = pc.utf8_length(pc.list_element(split, 0))
    return pc.if_else(pc.less(at, 0), pa.scalar(0, pa.int32()), pc.add(before.cast(pa.int32()), 1))


TEXT_FUNCTIONS = {
    "length": Function(_bind_length, _length),
    "octet_length": Function(_bind_length, _byte_length),
    "lower": _of_case(_mapped("ascii_lower", str.lower)),
    "upper": _of_case(_mapped("ascii_upper", str.upper)),
    "trim": _of_text(lambda array: pc.utf8_trim(array, " ")),
    "ltrim": _of_text(lambda array: pc.utf8_ltrim(array, " ")),
    "rtrim": _of_text(lambda array: pc.utf8_rtrim(array, " ")),
    "concat": Function(_bind_concat, _concat),
    "substring": Function(_bind_substring, _substring),
    "left": Function(_bind_side, _left),
    "right": Function(_bind_side, _right),
    "replace": Function(_bind_replace, _replace),
    "instr": Function(_bind_position, _position),
}
