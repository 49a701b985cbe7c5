"""ORC data files: read in a separate process, which a damaged file may crash, and written in Paimon's (Java) form.

===================  ================================================================
Paimon               ORC
===================  ================================================================
TINYINT              tinyint (a byte)
CHAR, VARCHAR        ``string`` (Java casts them to their length when it reads)
TIME                 int, milliseconds
TIMESTAMP            ``timestamp``
TIMESTAMP_LTZ        ``timestamp with local time zone``
field id             type attribute ``paimon.id``
===================  ================================================================

Reading.  Arrow's ORC reader (ORC C++) trusts numbers that it decodes: the lengths of strings are added up without a
look at overflow or sign and then used as addresses, lists of patches in run-length encoded integers are read beyond
their end, an allocation that fails ends the process, a decimal may be scaled for hours.  Those numbers are known only
after decoding, so nothing short of a second decoder could tell a file that kills the process from a sound one.  A
process of its own can be lost: that is a :class:`CorruptError`, and the next file gets a new one.  It asks for the
file's bytes and answers with Arrow IPC streams over its pipes (:mod:`bitlake.formats.orc_child`); its memory and
processor time are limited by what the file's rows can take.  A few processes are kept for the next file; they end
themselves when idle.

Timestamps.  Arrow holds ORC timestamps in nanoseconds, LTZ with time zone UTC, so years before 1677 or after 2262 are
refused on writing: they could not be read back.  LTZ is written as the instant that it is.  Paimon takes it for a wall
clock of the JVM's zone unless the option ``orc.timestamp-ltz.legacy.type`` is ``false``; tables with such a column get
that option when they are created here.  Arrow's writer stores a moment before 1970 with a negative fraction, which Java
(1.4.2) reads when it is whole milliseconds and fails on when it is not: those are refused too.  (Java's own writer
moves 23:59:59.001 … .999 of 1969-12-31 by a second.)

Source: table-format spec, section 8.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import json
import os
import pickle
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from subprocess import DEVNULL, Popen
from typing import Any

import pyarrow as pa

from bitlake.errors import CorruptError, InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.formats import orc_child
from bitlake.formats.conform import conform
from bitlake.formats.orc_child import HEADER
from bitlake.formats.parquet.decode import DECODE_ERRORS
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io.local import failure
from bitlake.lazy_modules import compute as pc
from bitlake.lazy_modules import orc as arrow_orc
from bitlake.metadata.stats import TableBounds
from bitlake.types.arrow import arrow_schema, holds
from bitlake.types.datatypes import DataField


def read_columns(
    source: Any, columns: Sequence[str] | None = None, *, batch_size: int = 64 * 1024
) -> Iterator[pa.RecordBatch]:
    """The rows of an ORC file in order, in batches of at most ``batch_size``; a stripe is in memory at a time.

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not valid.
    """
    process, schema = opened(_open(source))
    try:
        names = _names(schema)
        wanted = names if columns is None else list(columns)
        for name in wanted:
            if name not in names:
                raise NotFound(f"the ORC file has no column '{name}'; it has {', '.join(names)}")
        # Arrow reads no stripe without a column, but the rows still count.
        process.select([names.index(n) for n in wanted or names[:1]])
        rows = 0
        while (stripe := process.next()) is not None:
            rows += stripe.num_rows
            if rows > process.rows:
                break
            chosen = stripe.select(wanted)
            for start in range(0, chosen.num_rows, batch_size):
                yield chosen.slice(start, batch_size)
        if rows != process.rows:
            raise CorruptError(f"the ORC file's stripes hold {rows} rows or more, its footer says {process.rows}")
    finally:
        process.leave()


def _names(schema: pa.Schema) -> list[str]:
    try:
        # Names are decoded only now, and must be unique for columns to be found by them.
        names: list[str] = schema.names
    except DECODE_ERRORS as e:
        raise CorruptError(f"ORC footer: a column's name is not text: {e}") from e
    if len(set(names)) < len(names):
        raise CorruptError("the ORC file names a column twice")
    return names


def _open(source: Any) -> pa.NativeFile:
    if isinstance(source, pa.NativeFile):
        return source
    try:
        return pa.OSFile(source)
    except FileNotFoundError as e:
        raise NotFound(f"no such file: {source}") from e
    except OSError as e:
        raise StorageUnavailable(f"cannot read {source}: {e}") from e


# --- the process that decodes -----------------------------------------------------------------------------------------

SILENCE_S = 120.0
"""A process that is silent for so long hangs: no stripe takes this long."""
KEPT = 4
"""Idle processes kept for the next file."""
WHOLE_BYTES = 4 << 20
"""Files up to this size are read at once; of larger ones, what the decoder asks for."""
_BEYOND_NANOSECONDS = "out of range for nanosecond resolution"
"""Part of Arrow's error for a time that nanoseconds in 64 bits do not represent; the file is not damaged."""
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[3]); exec(sys.argv[2]); main(int(sys.argv[1]))"
# Popped and appended without a lock: a generator that reads may be finalised anywhere, also while a lock is held.
_idle: deque[OrcProcess] = deque()


class OrcProcess:
    """One process: :meth:`open` a file (:func:`opened` does), :meth:`select` columns, then :meth:`next` until None."""

    rows = 0
    """Rows of the open file, by its footer."""

    def __init__(self) -> None:
        self._owner, self._kept, self._settled = os.getpid(), False, True  # settled: no answer is outstanding
        self._to, other = socket.socketpair()
        program = [_BOOT, str(other.fileno()), inspect.getsource(orc_child), json.dumps([p for p in sys.path if p])]
        with other:
            try:
                command = [sys.executable, "-I", "-c", *program]
                self._popen = Popen(command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, pass_fds=[other.fileno()])
            except OSError as e:
                raise StorageUnavailable(f"cannot start {sys.executable}, which would read ORC files: {e}") from e

    @property
    def usable(self) -> bool:
        """Whether it is this process's (which may have been forked from the one that started it) and runs."""
        return self._owner == os.getpid() and self._popen.poll() is None

    def open(self, source: pa.NativeFile) -> pa.Schema | None:
        """Open a file, of which the process reads what it needs (all of a small one); None if it had ended already.

        Raises :class:`CorruptError` and :class:`UnsupportedFeature` for the file, :class:`StorageUnavailable`.
        """
        self._source, self._size, self._stripe = source, source.size(), 0
        path = _path(source)
        data = b"" if path or self._size > WHOLE_BYTES else self._read(0, self._size)
        kept, self._kept = self._kept, True
        try:
            (self.rows, self._stripes), schema, _ = next(self._answers("open", self._size, data, path))
            return schema
        except StorageUnavailable:
            # It may have ended by itself, idle, just when it was to be used again.
            if kept and self._popen.returncode in (0, -signal.SIGALRM):
                return None
            raise

    def select(self, columns: Sequence[int]) -> None:
        """Choose columns of the file, by number."""
        self._columns = list(columns)

    def next(self) -> pa.RecordBatch | None:
        """The columns of the next stripe, in the order chosen, or None behind the last."""
        if self._stripe >= self._stripes:
            return None
        columns: list[pa.Array] = []
        fields: list[pa.Field] = []
        try:
            for _, schema, batches in self._answers("stripe", self._stripe, self._columns):
                batches[0].validate(full=True)
                fields += schema
                columns += batches[0].columns
            self._stripe += 1
            return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))
        except (pa.ArrowException, ValueError, IndexError) as e:
            raise CorruptError(f"ORC stripe: {e}") from e

    def leave(self) -> None:
        """Done with the file: keep the process for another one, unless it is in the middle of something."""
        self._source = None
        if self._settled and self.usable and len(_idle) < KEPT:
            with contextlib.suppress(OSError):
                self._to.sendall(pickle.dumps(("close",)))
                _idle.append(self)
                return
        self.end()

    def end(self) -> None:
        """End the process."""
        if self._owner == os.getpid():
            self._popen.kill()
            self._popen.wait()
        else:
            self._popen.returncode = 0  # not a child of this process
        self._to.close()

    def _answers(self, *request: Any) -> Iterator[tuple[tuple[int, int], pa.Schema, list[pa.RecordBatch]]]:
        """The answers to a request: numbers, schema, batches.  The file's bytes are served until they come."""
        self._settled = False
        try:
            self._to.settimeout(SILENCE_S)
            self._to.sendall(pickle.dumps(request))
            while not self._settled:
                kind, a, b = HEADER.unpack(self.read(HEADER.size))
                if kind == b"R":
                    self._to.sendall(pickle.dumps(self._read(a, b)))
                    continue
                if kind == b"E":
                    text, self._settled = self.read(a).to_pybytes().decode(errors="replace"), True
                    if _BEYOND_NANOSECONDS in text:
                        raise UnsupportedFeature(f"ORC: {text}; rewrite the file with microseconds (TIMESTAMP(6))")
                    raise (UnsupportedFeature if b else CorruptError)(f"ORC: {text}")
                with pa.ipc.open_stream(pa.PythonFile(self, mode="r")) as stream:
                    schema, batches = stream.schema, list(stream)
                self._settled = kind == b"H" or not a
                yield (a, b), schema, batches
        except TimeoutError as e:
            raise CorruptError(f"Arrow's ORC reader did not come to an end on it in {SILENCE_S:.0f} s") from e
        except (EOFError, ConnectionError) as e:
            raise self._fault() from e
        except (pa.ArrowException, OSError, ValueError, MemoryError, struct.error) as e:
            raise CorruptError(f"Arrow's ORC reader answers nonsense on it: {e}") from e

    closed = False

    def read(self, n: int) -> pa.Buffer:
        """Read an answer's bytes, as Arrow asks for them, into its memory: its allocator keeps pages."""
        data = pa.allocate_buffer(n)
        view = memoryview(data).cast("B")
        while view:
            if not (got := self._to.recv_into(view)):
                raise EOFError
            view = view[got:]
        return data

    def _read(self, offset: int, n: int) -> bytes:
        if not (0 <= offset <= self._size and 0 <= n <= self._size - offset):
            raise CorruptError(f"the ORC file has {self._size} bytes, not {n} at {offset}")
        try:
            data: bytes = self._source.read_at(n, offset)
        except (pa.ArrowException, OSError, ValueError) as e:
            raise StorageUnavailable(f"reading an ORC file failed: {e}") from e
        return data

    def _fault(self) -> CorruptError | StorageUnavailable:
        """Why the process ended."""
        code = self._popen.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if name == "SIGPROF":
            return CorruptError("Arrow's ORC reader took far longer on it than its rows can: numbers in it are damaged")
        if name in _FAULTS:
            return CorruptError(f"Arrow's ORC reader ended with {name} on it: lengths or sizes in it are damaged")
        return StorageUnavailable(f"the process that reads ORC files ended by {name}; is memory too little? Try again")


def _path(source: pa.NativeFile) -> str:
    """Where another process of this user finds a local file that is open here, if it does."""
    if not isinstance(source, pa.OSFile | pa.MemoryMappedFile) or not os.path.isdir("/proc/self/fd"):
        return ""
    return f"/proc/{os.getpid()}/fd/{source.fileno()}"


def opened(source: pa.NativeFile) -> tuple[OrcProcess, pa.Schema]:
    """A process that has this file open; :meth:`OrcProcess.leave` it in the end, whatever happens.

    Raises what :meth:`OrcProcess.open` raises.
    """
    while True:
        process, schema = _take(), None
        try:
            schema = process.open(source)
        finally:
            if schema is None:
                process.leave()
        if schema is not None:
            return process, schema


def _take() -> OrcProcess:
    while _idle:
        with contextlib.suppress(IndexError):
            process = _idle.pop()
            if process.usable:
                return process
            process.end()
    return OrcProcess()


@atexit.register
def end_idle() -> None:
    """End the processes that wait for a file."""
    while _idle:
        with contextlib.suppress(IndexError):
            _idle.pop().end()


# --- writing ----------------------------------------------------------------------------------------------------------

STRIPE_BYTES = 64 << 20
_BLOCK_BYTES = 256 << 10
CODECS = {"zstd": "zstd", "zlib": "zlib", "gzip": "zlib", "snappy": "snappy", "lz4": "lz4", "none": "uncompressed"}
_GUESSED_RATIO = 0.4
_LATEST_NS = (1 << 63) - 1
_PER_UNIT = {"ms": 1_000_000, "us": 1_000}


class OrcWriter:
    """Writes one file: :meth:`write` any number of times, then :meth:`close` (which leaves ``output`` open).

    Memory is bounded by one stripe.  ``output`` is a :class:`pyarrow.NativeFile` or a binary file object with ``tell``.
    """

    def __init__(
        self, output: Any, fields: Sequence[DataField], *, compression: str = "zstd", stripe_bytes: int = STRIPE_BYTES
    ) -> None:
        codec = CODECS.get(compression.lower())
        if codec is None:
            raise InvalidRequest(f"ORC compression '{compression}' is not one of {', '.join(CODECS)}")
        self._output = output
        self._fields = tuple(fields)
        self._plain = arrow_schema(self._fields)
        self._schema = pa.schema([_orc_field(f) for f in arrow_schema(self._fields, ids=True)])
        self._bounds = TableBounds(self._fields)
        self._rows = self._waiting = self._flushed = 0
        self._start: int = output.tell()
        self._seen = self._start
        self._sink = _Sink(output)
        self._writer = arrow_orc.ORCWriter(
            pa.PythonFile(self._sink, mode="w"),
            compression=codec,
            compression_block_size=_BLOCK_BYTES,
            stripe_size=stripe_bytes,
        )

    @property
    def row_count(self) -> int:
        """Rows written so far."""
        return self._rows

    @property
    def bytes_written(self) -> int:
        """The file's size so far; rows that wait for their stripe count by the compression seen until now."""
        done: int = self._output.tell() - self._start
        ratio = done / self._flushed if self._flushed else _GUESSED_RATIO
        return done + int(self._waiting * ratio)

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns are matched by name and brought to the table's types.

        Raises :class:`InvalidRequest`, naming the column, for a value that the column cannot hold.
        """
        table = conform(batch, self._fields, self._plain)
        if not table.num_rows:
            return
        for field, column in zip(self._fields, table.columns, strict=True):
            _check_moments(field.name, column)
        self._bounds.add(table)
        self._write(table)
        self._rows += table.num_rows
        self._waiting += table.nbytes
        now = self._output.tell()
        if now > self._seen + 3:  # a stripe went out; the magic alone is three bytes
            self._seen = now
            self._flushed += self._waiting
            self._waiting = 0

    def close(self) -> WrittenFile:
        """Finish the file and return what it holds."""
        if not self._rows:
            self._write(self._plain.empty_table())
        try:
            self._writer.close()
            self._sink.check()
        except (pa.ArrowException, OSError) as e:
            raise failure("write", "an ORC file", e) from e
        mins, maxs, nulls = self._bounds.result()
        return WrittenFile(self._output.tell() - self._start, self._rows, mins, maxs, nulls)

    def _write(self, table: pa.Table) -> None:
        try:
            arrays = [_as(c, f.type) for c, f in zip(table.columns, self._schema, strict=True)]
            self._writer.write(pa.Table.from_arrays(arrays, schema=self._schema))
            self._sink.check()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError, ValueError) as e:
            raise InvalidRequest(f"cannot write ORC: {e}") from e
        except OSError as e:
            raise failure("write", "an ORC file", e) from e


class _Sink:
    """The output for Arrow's writer, which must not see it fail: :meth:`check` raises the first error instead.

    Arrow's writer does not catch what ORC C++ throws while it writes the last stripe and the footer, and that ends the
    process.  It writes them when it is closed, and when it is deleted after a failed write, with ``output`` closed.
    """

    closed = False

    def __init__(self, output: Any) -> None:
        self._output = output
        self._error: BaseException | None = None

    def write(self, data: bytes) -> int:
        """Write bytes, unless an earlier write failed."""
        if self._error is None:
            try:
                self._output.write(data)
            except BaseException as e:  # noqa: BLE001 (an interrupt, too, is for the caller)
                self._error = e
        return len(data)

    def check(self) -> None:
        """Raise the error of a write."""
        if self._error is not None:
            raise self._error

    def tell(self) -> int:
        """The position in the output."""
        return int(self._output.tell())

    def flush(self) -> None:
        """Do nothing: the output is flushed by its owner."""

    def close(self) -> None:
        """Do nothing: the output is closed by its owner."""


def _orc_field(field: pa.Field) -> pa.Field:
    """A field as ORC holds it, its id under the name that Paimon gives it."""
    number = (field.metadata or {}).get(b"PARQUET:field_id")
    metadata = None if number is None else {"paimon.id": number.decode()}
    return pa.field(field.name, _orc_type(field.type), True, metadata=metadata)


def _orc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([_orc_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_orc_field(kind.key_field).with_nullable(False), _orc_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_orc_field(kind.value_field))
    return kind


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    array = column if column.type == kind else column.cast(kind)
    if not holds(kind, pa.types.is_struct):
        return array
    # Copies begin at 0: of a slice of structs, Arrow's writer stores members of other rows.
    return pa.chunked_array([_nulls_inside(pa.concat_arrays([c, c.slice(0, 0)])) for c in array.chunks], kind)


def _nulls_inside(array: pa.Array) -> pa.Array:
    """The array with members that are NULL wherever their struct is.

    Arrow's writer stores what other members hold there, and the values of later rows come out as those of earlier ones.
    """
    kind = array.type
    if not holds(kind, pa.types.is_struct):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_nulls_inside(a) for a in array.flatten()], fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        keys, items = _nulls_inside(array.keys), _nulls_inside(array.items)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(array.offsets, _nulls_inside(array.values), type=kind, mask=mask)


def _check_moments(name: str, column: pa.ChunkedArray | pa.Array) -> None:
    """Refuse timestamps, at any depth, that this reader (years) or Java's (fractions before 1970) cannot read."""
    kind = column.type
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_timestamp(kind) and kind.unit in _PER_UNIT:
            bound = _LATEST_NS // _PER_UNIT[kind.unit]
            numbers = chunk.cast(pa.int64())
            both = pc.min_max(numbers).as_py()
            if both["min"] is not None and (both["min"] < -bound or both["max"] > bound):
                raise InvalidRequest(
                    f"column '{name}': ORC files hold timestamps from 1677-09-22 to 2262-04-11 here; "
                    "use 'file.format' = 'parquet' for others"
                )
            if both["min"] is not None and both["min"] < 0 and kind.unit == "us":
                whole = pc.multiply(pc.divide(numbers, 1000), 1000)
                if pc.any(pc.and_(pc.less(numbers, 0), pc.not_equal(whole, numbers))).as_py():
                    raise InvalidRequest(
                        f"column '{name}': a timestamp before 1970 with a fraction of a millisecond cannot be written "
                        "as ORC so that Paimon reads it; use 'file.format' = 'parquet'"
                    )
        elif pa.types.is_struct(kind):
            for child in chunk.flatten():
                _check_moments(name, child)
        elif pa.types.is_map(kind):
            _check_moments(name, chunk.keys)
            _check_moments(name, chunk.items)
        elif pa.types.is_list(kind):
            _check_moments(name, chunk.flatten())
