"""Table indexes: deletion vectors and the HASH indexes of dynamic buckets.

:class:`VectorRange` is here because index manifests need it without numpy.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorRange:
    """The place of the vector of ``data_file`` (a file name).

    ``offset``: of its size word, in bytes; ``length``: see :mod:`bitlake.tableindex.deletion_vectors`; ``cardinality``:
    the number of deleted rows, None in files of old writers.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None
