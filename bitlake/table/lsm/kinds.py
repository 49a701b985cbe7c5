"""Row kinds: whether a row of a change adds or takes back, given beside rows or in a column of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.errors import InvalidRequest
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.table.merge.spec import DELETE, UPDATE_BEFORE, VALUE_KIND

WORDS = ("+I", "-U", "+U", "-D")
"""By the number that stands for it on disk."""


def with_kinds(table: str, schema: TableSchema, rows: pa.Table, kinds: Any = None) -> pa.Table:
    """The rows with a last column ``_VALUE_KIND`` (int8), without those that the table ignores.

    ``kinds``: an Arrow array of as many words (``+I``, ``-U``, ``+U``, ``-D``) or numbers 0 to 3; None: all are +I.
    ``rowkind.field`` names a column that decides instead.  Raises :class:`InvalidRequest` for anything else, NULL too.
    """
    options = schema.opts
    column = options.of(lsm.ROWKIND_FIELD)
    if column is not None:
        if kinds is not None:
            raise InvalidRequest(
                f"table '{table}': its column '{column}' holds the row kinds; none can be given beside"
            )
        kinds = rows.column(schema.field(column).name)
    if kinds is None:
        return rows.append_column(VALUE_KIND, pa.array(np.zeros(rows.num_rows, np.int8)))
    codes = kind_codes(table, kinds)
    if len(codes) != rows.num_rows:
        raise InvalidRequest(f"table '{table}': {len(codes)} row kinds are given for {rows.num_rows} rows")
    made = rows.append_column(VALUE_KIND, pa.array(codes))
    drop = np.zeros(len(codes), bool)
    if ignores_deletes(schema):
        drop |= (codes == UPDATE_BEFORE) | (codes == DELETE)
    if options.of(lsm.IGNORE_UPDATE_BEFORE):
        drop |= codes == UPDATE_BEFORE
    return made.filter(pa.array(~drop)) if drop.any() else made


def ignores_deletes(schema: TableSchema) -> bool:
    """Whether -U and -D never reach the table's files."""
    engine = schema.opts.of(opt.MERGE_ENGINE)
    text = schema.options.get(f"{engine}.ignore-delete", "false").strip().lower()
    return schema.opts.of(lsm.IGNORE_DELETE) or text == "true"


def kind_codes(table: str, kinds: Any) -> np.ndarray:
    """Row kinds as int8; raises :class:`InvalidRequest` for one that is none."""
    array = kinds if isinstance(kinds, pa.Array | pa.ChunkedArray) else pa.array(kinds)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        raise InvalidRequest(f"table '{table}': {array.null_count} rows have no row kind; it is one of {_LIST}")
    if pa.types.is_integer(array.type):
        codes = array.to_numpy(zero_copy_only=False)
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        places = pc.index_in(array, value_set=pa.array(WORDS, array.type))
        codes = places.fill_null(-1).to_numpy(zero_copy_only=False)
    elif not len(array):
        return np.zeros(0, np.int8)
    else:
        raise InvalidRequest(f"table '{table}': row kinds are words ({_LIST}) or numbers 0 to 3, not {array.type}")
    strange = np.flatnonzero((codes < 0) | (codes >= len(WORDS)))
    if len(strange):
        raise InvalidRequest(f"table '{table}': {array[int(strange[0])]} is no row kind; it is one of {_LIST}")
    out: np.ndarray = codes.astype(np.int8, copy=False)
    return out


_LIST = ", ".join(WORDS)
