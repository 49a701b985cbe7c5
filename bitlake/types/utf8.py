"""Text that is not UTF-8: files may hold any bytes, and engines that trust Arrow's types crash on them.

Arrow checks values one by one: 6 to 9 ms for 1M values of 8 to 40 ASCII bytes, 20 ms for 40 bytes of Japanese, on one
core.  Bytes without a high bit are UTF-8 however they are cut into values, and are looked for first: 0.7 to 4 ms.
"""

from __future__ import annotations

import re

from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import numpy as np
from bitlake.lazy_modules import pyarrow as pa

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Half of a surrogate pair, perhaps cut short: one replacement character in Java, two or three in Python."""
_REPLACEMENT = "\ufffd".encode()
_DECODED = 256
"""Values that Python decodes one by one: Arrow's error for invalid text takes as long as some tens of them."""


def java_text(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Text as Java decodes it: U+FFFD in place of each sequence of bytes that is not UTF-8."""
    if is_utf8(values):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([java_text(chunk) for chunk in values.chunks], values.type)
    invalid = _invalid_rows(values)
    stored = values.take(pa.array(invalid)).cast(pa.binary()).to_pylist()
    decoded = [decoded_text(value) for value in stored]
    mask = np.zeros(len(values), bool)
    mask[invalid] = True
    return pc.replace_with_mask(values, pa.array(mask), pa.array(decoded, values.type))


def decoded_text(value: bytes) -> str:
    """Decode UTF-8 as Java does: one U+FFFD for each malformed sequence, half a surrogate pair included."""
    return _SURROGATE.sub(_REPLACEMENT, value).decode("utf-8", "replace")


def _invalid_rows(text: pa.Array, first: int = 0) -> list[int]:
    """The places of values that are not UTF-8: halves without any are left out, and few values are decoded to see."""
    if is_utf8(text):
        return []
    if len(text) <= _DECODED:
        values = text.cast(pa.binary()).to_pylist()
        return [first + i for i, value in enumerate(values) if value is not None and not _is_decoded(value)]
    half = len(text) // 2
    return [*_invalid_rows(text.slice(0, half), first), *_invalid_rows(text.slice(half), first + half)]


def _is_decoded(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


_NO_BREAK = frozenset("\x85\u00a0\u2007\u202f")
"""Characters that are spaces to Python, and not to Java's ``Character.isWhitespace``."""


def is_blank(text: str | None) -> bool:
    """Whether a text is None, empty, or only what Java's ``Character.isWhitespace`` accepts."""
    return text is None or not (text.strip() or _NO_BREAK.intersection(text))


def is_utf8(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether all text in a column is UTF-8, that of its members and dictionaries included."""
    kind = values.type
    if not _has_text(kind):
        return True
    if isinstance(values, pa.ChunkedArray):
        dictionaries: dict[int, pa.Array] = {}
        if pa.types.is_dictionary(kind):  # chunks share theirs
            dictionaries = {_address(chunk.dictionary): chunk.dictionary for chunk in values.chunks}
        return all(is_utf8(chunk) for chunk in dictionaries.values() or values.chunks)
    if pa.types.is_dictionary(kind):
        return is_utf8(values.dictionary)
    if pa.types.is_struct(kind):
        return all(map(is_utf8, values.flatten()))
    if pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        return all(is_utf8(part.slice(first, last - first)) for part in (values.keys, values.items))
    if not _is_text(kind):
        return is_utf8(values.flatten())  # an array's elements
    return (pa.types.is_string(kind) and _is_ascii(values)) or _is_valid(values)


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    children = (kind.field(i).type for i in range(kind.num_fields))
    return _is_text(kind) or any(map(_has_text, children))


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(kind) for is_kind in tests)


def _address(text: pa.Array) -> int:
    data = text.buffers()[-1]
    return 0 if data is None else int(data.address)


def _is_ascii(text: pa.Array) -> bool:
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return True
    ends = np.frombuffer(offsets, np.int32)
    first, last = int(ends[text.offset]), int(ends[text.offset + len(text)])
    return first == last or bool(np.frombuffer(data, np.int8)[first:last].min() >= 0)


def _is_valid(text: pa.Array) -> bool:
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
