"""``theta_sketch`` and ``hll_sketch``: unions of Apache DataSketches, in the bytes that Paimon (Java) writes.

They need the optional package ``datasketches`` (``pip install 'bitlake[sketches]'``); nothing else does
(docs/decisions/0012-sketches.md).

Its theta sketches equal Java's except for bytes that readers ignore.  This module sets those, so that the same rows
give the same bytes::

    byte 5, bit 0x20   of a sketch of one value (16 bytes, one long of preamble): Java marks it
    bytes 12-15        of larger ones: Java writes the sampling probability, 1.0 as a float
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.lazy_modules import install_command

_Union = Callable[[bytes | None, bytes | None], bytes | None]
_SINGLE_ITEM = 0x20
_ONE = b"\x00\x00\x80\x3f"


def sketch_union(name: str) -> _Union:
    """The function that unites two sketches of ``theta_sketch`` or ``hll_sketch`` (None: nothing yet).

    Raises :class:`UnsupportedFeature` if the package is not installed.  The function raises :class:`CorruptError` for
    bytes that are not a sketch.
    """
    try:
        import datasketches as library
    except ImportError as e:
        raise UnsupportedFeature(
            f"aggregate function '{name}' needs the package datasketches: {install_command('sketches')}"
        ) from e
    unite = _theta if name == "theta_sketch" else _hll

    def agg(held: bytes | None, new: bytes | None) -> bytes | None:
        if held is None or new is None:
            return new if held is None else held
        try:
            return unite(library, held, new)
        except (RuntimeError, ValueError, IndexError, OverflowError, MemoryError) as e:
            raise CorruptError(f"aggregate function '{name}': a value is not a valid sketch ({e})") from e

    return agg


def _theta(library: Any, held: bytes, new: bytes) -> bytes:
    union = library.theta_union()
    for sketch in (held, new):
        union.update(library.compact_theta_sketch.deserialize(sketch))
    data = bytearray(union.get_result().serialize())
    if data[0] & 0x3F > 1:
        data[12:16] = _ONE
    elif len(data) == 16:
        data[5] |= _SINGLE_ITEM
    return bytes(data)


def _hll(library: Any, held: bytes, new: bytes) -> bytes:
    # As in Java: the new sketch's size is the union's, and it comes first.
    first, second = (library.hll_sketch.deserialize(s) for s in (new, held))
    union = library.hll_union(first.lg_config_k)
    union.update(first)
    union.update(second)
    data: bytes = union.get_result(library.tgt_hll_type.HLL_4).serialize_compact()
    return data
