"""The filter behind Spark's own Parquet reader that leaves out the rows of deletion vectors: a test of one bit a row.

``_metadata`` gives a row's file and position, and scalar subqueries over a local relation give two arrays of longs::

    starts[slots]  first word of the file whose name has this CRC-32 modulo slots, or a negative number
    words[]        per file: bit i % 64 of word i / 64 is set if row i is not read

``slots`` is a number modulo which the CRC-32 of the names differ.  Spark compiles the whole test; neither Python nor a
join touches a row (``docs/decisions/0024-deleted-rows-on-spark.md``).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake.scan.plan import Plan, PlannedFile
from bitlake.spark.hadoop_path import uri_name
from bitlake.spark.read.local_relation import local_frame
from bitlake.sql.file_metadata import METADATA

MASK_BYTES = 16 << 20
"""The most bytes of bits in a query's plan, one bit for each row: the driver computes them, and each task of the scan
holds a copy.  Python workers read the files of larger scans."""
MASK_FILES = 1000
"""The most files: the number of slots is about a quarter of its square."""
_NO_FILE = -(1 << 30)
"""The start of a slot without a file: the number of any word in it stays negative."""
_WORD = 64
_DELETED_TYPES = T.StructType([T.StructField(n, T.ArrayType(T.LongType(), False), False) for n in ("starts", "words")])


def can_mask(plan: Plan, files: Sequence[PlannedFile]) -> bool:
    """Whether :func:`is_read` accepts these files of a plan: their bits are few, and their names differ in CRC-32."""
    if len(files) > MASK_FILES or sum(f.row_count for f in files) > 8 * MASK_BYTES:
        return False
    if any(f.name.lower() == METADATA for f in plan.schema.fields):
        return False  # Spark's own column of this name is hidden by the table's
    return len({_crc(f) for f in files}) == len(files)


def mask_key(files: Sequence[PlannedFile]) -> bytes:
    """A digest of which rows of the files are read."""
    digest = hashlib.blake2b(digest_size=16)
    for f in files:
        rows = b"" if f.selection.rows is None else f.selection.rows.serialize()
        digest.update(f"{f.row_count},{len(rows)},".encode())
        digest.update(rows)
    return digest.digest()


def is_read(spark: SparkSession, files: Sequence[PlannedFile]) -> tuple[Column, int]:
    """The condition that a row of Spark's reader over these files is among the files' selections; its bytes in memory.

    Requires :func:`can_mask`, and a reader of just these files.  A row behind the last file's last word is an error.
    """
    starts, words = _arrays(files)
    columns = {"starts": _one_list(starts), "words": _one_list(words)}
    arrays = local_frame(spark, pa.table(columns), _DELETED_TYPES)
    # Two subqueries: each use of one is an array of its own in the code that tasks get.
    slot = F.crc32(F.col(f"{METADATA}.file_name").cast("binary")) % F.lit(len(starts))
    start = F.get(arrays.select("starts").scalar(), slot)
    row = F.col(f"{METADATA}.row_index")
    word = F.get(arrays.select("words").scalar(), start + F.shiftright(row, 6))
    unknown = F.raise_error(F.lit("a data file has more rows than its manifest entry says"))
    bit = F.getbit(F.coalesce(word, unknown.cast("bigint")), row.bitwiseAND(F.lit(_WORD - 1)).cast("int"))
    return bit == F.lit(0), starts.nbytes + words.nbytes


def _arrays(files: Sequence[PlannedFile]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The arrays ``starts`` and ``words``, as at the head of this module."""
    sizes = np.array([-(-f.row_count // _WORD) for f in files], np.int64)
    firsts = np.cumsum(sizes) - sizes
    slots, places = _slots(np.array([_crc(f) for f in files], np.int64))
    starts = np.full(slots, _NO_FILE, np.int64)
    starts[places] = firsts
    words = np.empty(int(sizes.sum()), np.int64)
    for f, first, size in zip(files, firsts.tolist(), sizes.tolist(), strict=True):
        skipped = np.ones(size * _WORD, bool)
        skipped[f.selection.positions(f.row_count)] = False
        words[first : first + size] = np.packbits(skipped, bitorder="little").view("<i8")
    return starts, words


def _one_list(values: npt.NDArray[np.int64]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pa.array(values))


def _slots(names: npt.NDArray[np.int64]) -> tuple[int, npt.NDArray[np.int64]]:
    """Return a small number modulo which these distinct numbers differ, and their remainders."""
    slots = len(names)
    while len(np.unique(names % slots)) < len(names):
        slots += max(1, slots // 16)
    return slots, names % slots


def _crc(file: PlannedFile) -> int:
    return zlib.crc32(uri_name(file.path).encode())
