"""Where a deletion vector is, as index manifests say: known without numpy, which the vectors themselves need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorRange:
    """Where the vector of ``data_file`` (a file name) is in an index file.

    ``offset``: of its size word, in bytes; ``length``: see the module; ``cardinality``: how many rows it deletes, None
    in files of old writers.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None
