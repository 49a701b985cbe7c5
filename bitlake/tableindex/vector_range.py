"""The place of a deletion vector in an index file.  Apart from the vectors because it needs no numpy."""

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
