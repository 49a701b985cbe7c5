"""Arrow rows as JSON, one object a line, made column by column: no Python loop over rows.

Texts are escaped as RFC 8259 asks; whole numbers and finite floats are numbers; decimals are texts, so that readers
lose no digit, and NaN and infinities too, since JSON has none; times are ISO 8601, in UTC with ``Z`` where they are
instants; binary is hexadecimal digits; structs are objects, lists arrays, maps objects whose keys are texts.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\b", "\\b"), ("\f", "\\f"))
_REST = "[\x00-\x1f]"


def json_lines(rows: pa.RecordBatch | pa.Table) -> bytes:
    """The rows as UTF-8 text, each line ended."""
    out = []
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    for batch in batches:
        if batch.num_rows:
            out.append(_joined(_objects(batch.schema.names, batch.columns)) + b"\n")
    return b"".join(out)


def _joined(lines: pa.Array) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return pc.binary_join(whole, "\n")[0].as_py().encode()  # type: ignore[no-any-return]


def _objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One object per row, of values that are side by side."""
    if not columns:
        return pa.array([], pa.string())
    parts: list[pa.Array | pa.Scalar] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        head = ("{" if i == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        parts += [pa.scalar(head), _values(column)]
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def _values(column: pa.Array) -> pa.Array:
    """Every value as JSON text, NULL as ``null``; one per row."""
    return pc.fill_null(_present(column), "null").cast(pa.string())


def _present(column: pa.Array) -> pa.Array:
    """JSON text where there is a value, NULL where there is none."""
    made = column.type
    if pa.types.is_dictionary(made):
        return _present(column.cast(made.value_type))
    if pa.types.is_struct(made):
        return _where_valid(column, _objects([f.name for f in made], column.flatten()) if made.num_fields else "{}")
    if pa.types.is_map(made):
        return _map(column)
    if pa.types.is_list(made) or pa.types.is_large_list(made):
        return _list(column, _values(column.flatten()), "[", "]")
    if pa.types.is_null(made):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_boolean(made) or pa.types.is_integer(made):
        return column.cast(pa.string())
    if pa.types.is_floating(made):
        text = column.cast(pa.string())
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    return _quoted(_escaped(_text(column)))


def _text(column: pa.Array) -> pa.Array:
    made = column.type
    if pa.types.is_binary(made) or pa.types.is_large_binary(made) or pa.types.is_fixed_size_binary(made):
        return hexadecimal(column)
    if pa.types.is_timestamp(made):
        text = pc.replace_substring(column.cast(pa.timestamp(made.unit)).cast(pa.string()), " ", "T")
        return text if made.tz is None else pc.binary_join_element_wise(text, pa.scalar("Z"), "")
    return column.cast(pa.string())


def _escaped(text: pa.Array) -> pa.Array:
    for raw, safe in _ESCAPES:
        text = pc.replace_substring(text, raw, safe)
    if pc.any(pc.match_substring_regex(text, _REST)).as_py():
        for code in set(range(32)) - {8, 9, 10, 12, 13}:
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return text


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), "")


def _list(column: pa.Array, items: pa.Array, left: str, right: str) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
    return _where_valid(column, pc.binary_join_element_wise(pa.scalar(left), joined, pa.scalar(right), ""))


def _map(column: pa.Array) -> pa.Array:
    entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    flat = entries.flatten()
    keys = _quoted(_escaped(_text(flat.field("key"))))
    items = pc.binary_join_element_wise(keys, _values(flat.field("value")), ":")
    return _list(entries, items, "{", "}")


def _where_valid(column: pa.Array, text: pa.Array | str) -> pa.Array:
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))


_DIGITS = np.array([f"{i:02x}".encode() for i in range(256)], "S2")


def hexadecimal(column: pa.Array) -> pa.Array:
    """Binary values as texts of two digits a byte."""
    whole = pc.fill_null(column.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(whole.buffers()[1], np.int64, len(whole) + 1, whole.offset * 8)
    data = whole.buffers()[2]
    taken = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    digits = pa.py_buffer(_DIGITS[taken].tobytes())
    places = pa.py_buffer(((offsets - offsets[0]) * 2).astype(np.int64))
    text = pa.LargeStringArray.from_buffers(len(whole), places, digits).cast(pa.string())
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))
