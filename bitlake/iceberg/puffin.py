"""Puffin files: deletion vectors with the footer that Iceberg readers need.

::

    "PFA1"
    blobs, back to back: each the frame of a 64-bit deletion vector (bitlake/tableindex/deletion_vectors.py)
    "PFA1" | footer payload, JSON in UTF-8 | i4 LE its size | 4 bytes of flags, 0: not compressed | "PFA1"

The footer lists for each blob its type ``deletion-vector-v1``, offset and length, and in its properties the data file
(``referenced-data-file``) and the number of deleted rows (``cardinality``).

Sources: the Puffin specification; the Iceberg specification, "Deletion Vectors".
"""

from __future__ import annotations

import json
from collections.abc import Sequence

MAGIC = b"PFA1"
_ROW_POSITION = 2147483645
"""The field id of a row's position, which a deletion vector is about."""


def encode_puffin(vectors: Sequence[tuple[str, int, bytes]]) -> tuple[bytes, list[int]]:
    """A Puffin file of deletion vectors, and the offset of each; a vector is a data file, deleted rows and a frame."""
    out = bytearray(MAGIC)
    blobs, offsets = [], []
    for data_file, cardinality, frame in vectors:
        offsets.append(len(out))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,  # inherited from the manifest entry
                "sequence-number": -1,
                "offset": len(out),
                "length": len(frame),
                "properties": {"referenced-data-file": data_file, "cardinality": str(cardinality)},
            }
        )
        out += frame
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "bitlake"}}, ensure_ascii=False).encode()
    out += MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + MAGIC
    return bytes(out), offsets
