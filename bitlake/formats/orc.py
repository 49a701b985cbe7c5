"""Read ORC data files: whole columns by stripe, in a process beside this one, which damage may kill.

Paimon writes TIMESTAMP as ``timestamp`` and LTZ as ``timestamp with local time zone``; Arrow reads both in nanoseconds
(years 1677 to 2262), the latter with time zone UTC.  Source: table-format spec, section 8.

Arrow's ORC reader (ORC C++) trusts numbers that it decodes: the lengths of strings are added up without a look at
overflow or sign and then used as addresses, lists of patches in run-length encoded integers are read beyond their end,
an allocation that fails ends the process, a decimal may be scaled for hours.  Those numbers are known only after
decoding, so nothing short of a second decoder could tell a file that kills the process from a sound one.  A process of
its own can be lost: that is a :class:`CorruptError`, and the next file gets a new one.  It asks for the file's bytes
and answers with record batches over its pipes (:mod:`bitlake.formats.orc_child` draws the frames); its memory and
processor time are limited by what the file's rows can take.  Processes are kept for the next file, a few of them, and
end themselves when idle.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import io
import json
import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from bitlake.errors import CorruptError, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.formats import orc_child
from bitlake.formats.parquet.mini_file import DECODE_ERRORS


def read_schema(source: Any) -> pa.Schema:
    """The columns of an ORC file (a local path or a :class:`pyarrow.NativeFile`)."""
    process, head = opened(_open(source))
    try:
        _names(head)
    finally:
        process.leave()
    return head.schema


def read_columns(
    source: Any, columns: Sequence[str] | None = None, *, batch_size: int = 64 * 1024
) -> Iterator[pa.RecordBatch]:
    """The rows of an ORC file in order, in batches of at most ``batch_size``; a stripe is in memory at a time.

    Raises :class:`NotFound` for a file or column that is not there, :class:`CorruptError` for bytes that are not valid.
    """
    process, head = opened(_open(source))
    try:
        names = _names(head)
        wanted = names if columns is None else list(columns)
        for name in wanted:
            if name not in names:
                raise NotFound(f"the ORC file has no column '{name}'; it has {', '.join(names)}")
        # Arrow reads no stripe without a column, but the rows still count.
        process.select([names.index(n) for n in wanted or names[:1]])
        rows = 0
        while (stripe := process.next()) is not None:
            rows += stripe.num_rows
            if rows > head.rows:
                break
            chosen = stripe.select(wanted)
            for start in range(0, chosen.num_rows, batch_size):
                yield chosen.slice(start, batch_size)
        if rows != head.rows:
            raise CorruptError(f"the ORC file's stripes hold {rows} rows or more, its footer says {head.rows}")
    finally:
        process.leave()


def _names(head: OrcHead) -> list[str]:
    try:
        # Names are decoded only now, and must be unique for columns to be found by them.
        names: list[str] = head.schema.names
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


SILENCE_S = 120.0
"""A process that is silent for so long hangs: no stripe takes this long."""
KEPT = 4
"""Idle processes kept for the next file."""
WHOLE_BYTES = 4 << 20
"""Files up to this size are read at once; of larger ones, what the decoder asks for."""
_PIPE_BYTES = 1 << 20
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); exec(sys.argv.pop())"
# Popped and appended without a lock: a generator that reads may be finalised anywhere, also while a lock is held.
_idle: deque[OrcProcess] = deque()


@dataclass(frozen=True, slots=True)
class OrcHead:
    """What an ORC file says of itself: its columns as Arrow types, and how many rows it holds."""

    schema: pa.Schema
    rows: int


class _Gone(Exception):
    """The process ended."""


class OrcProcess:
    """One process: :meth:`open` a file (:func:`opened` does), :meth:`select` columns, then :meth:`next` until None."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._source: Any = None
        self._size = 0
        self._settled = True  # no answer is outstanding
        self._kept = self._last = False
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, "serve", _program(), json.dumps([p for p in sys.path if p])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        except OSError as e:
            raise StorageUnavailable(f"the process that reads ORC files does not start ({sys.executable}): {e}") from e
        self._to, self._from = cast(io.RawIOBase, self._popen.stdin), cast(io.RawIOBase, self._popen.stdout)
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl

            for pipe in (self._to, self._from):
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def usable(self) -> bool:
        """Whether it is this process's (which may have been forked from the one that started it) and runs."""
        return self._owner == os.getpid() and self._popen.poll() is None

    def open(self, source: pa.NativeFile) -> OrcHead | None:
        """Open a file, of which the process reads what it needs (all of a small one); None if it had ended already.

        Raises :class:`CorruptError` and :class:`UnsupportedFeature` for the file, :class:`StorageUnavailable`.
        """
        self._source, self._size = source, source.size()
        path = _path(source)
        whole = b"" if path or self._size > WHOLE_BYTES else self._read(0, self._size)
        kept, self._kept = self._kept, True
        try:
            with self._faults():
                self._send(b"O" + struct.pack("<qq", self._size, len(whole)) + whole)
                self._send(struct.pack("<i", len(path)) + path)
                self._answer(b"H")
                rows, n = struct.unpack("<qq", self._receive(16))
                return OrcHead(pa.ipc.read_schema(pa.py_buffer(self._receive(n))), rows)
        except StorageUnavailable:
            # It may have ended by itself, idle, just when it was to be used again.
            if kept and self._popen.returncode == 0:
                return None
            raise

    def select(self, columns: Sequence[int]) -> None:
        """Choose columns of the file, by number."""
        with self._faults():
            self._send(b"S" + struct.pack(f"<i{len(columns)}i", len(columns), *columns))
        self._last = False

    def next(self) -> pa.RecordBatch | None:
        """The columns of the next stripe, in the order chosen or the file's, or None behind the last."""
        if self._last:
            return None
        pieces: list[pa.RecordBatch] = []
        with self._faults():
            self._send(b"N")
            kind = b"P"
            while kind == b"P":
                if pieces:
                    _validate(pieces[-1])
                kind = self._answer(b"PBLZ")
                if kind != b"Z":
                    with pa.ipc.open_stream(pa.PythonFile(_Pipe(self._from), mode="r")) as stream:
                        pieces += stream
            self._last = kind != b"B"
        if not pieces:
            return None
        _validate(pieces[-1])
        try:
            schema = pa.schema([f for p in pieces for f in p.schema], pieces[0].schema.metadata)
            return pa.RecordBatch.from_arrays([c for p in pieces for c in p.columns], schema=schema)
        except (pa.ArrowException, ValueError) as e:
            raise CorruptError(f"ORC stripe: its columns differ in length: {e}") from e

    def leave(self) -> None:
        """Done with the file: keep the process for another one, unless it is in the middle of something."""
        self._source = None
        if self._settled and self.usable and len(_idle) < KEPT:
            with contextlib.suppress(_Gone):
                self._send(b"C")
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
        self._from.close()

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Errors of bitlake for what goes wrong between the processes."""
        self._settled = False
        try:
            yield
        except _Gone as e:
            raise self._fault() from e
        except (pa.ArrowException, OSError, ValueError, MemoryError, struct.error) as e:
            raise CorruptError(f"Arrow's ORC reader answers nonsense on it: {e}") from e
        self._settled = True

    def _fault(self) -> CorruptError | StorageUnavailable:
        """Why the process ended."""
        code = self._popen.wait()
        try:
            name = signal.Signals(-code).name
        except ValueError:
            return StorageUnavailable(f"the process that reads ORC files ended with exit code {code}: try again")
        if name == "SIGPROF":
            return CorruptError("Arrow's ORC reader took far longer on it than its rows can: numbers in it are damaged")
        if name in _FAULTS:
            return CorruptError(f"Arrow's ORC reader ended with {name} on it: lengths or sizes in it are damaged")
        return StorageUnavailable(
            f"the process that reads ORC files was ended by {name} (is there too little memory?): try again"
        )

    def _answer(self, expected: bytes) -> bytes:
        """The answer's kind; the file's bytes are served until it comes."""
        while True:
            if orc_child.silent(self._from, SILENCE_S):
                raise CorruptError(f"Arrow's ORC reader did not come to an end on it in {SILENCE_S:.0f} s")
            kind = bytes(self._receive(1))
            if kind in expected:
                return kind
            if kind == b"R":
                self._serve(*struct.unpack("<qq", self._receive(16)))
            elif kind == b"E":
                what, n = struct.unpack("<Bq", self._receive(9))
                text = "ORC: " + self._receive(n).decode(errors="replace")
                self._settled = True
                raise UnsupportedFeature(text) if what == orc_child.UNSUPPORTED else CorruptError(text)
            else:
                raise CorruptError("Arrow's ORC reader answers nonsense on it")

    def _serve(self, offset: int, n: int) -> None:
        if not (0 <= offset <= self._size and 0 <= n <= self._size - offset):
            raise CorruptError(f"the ORC file has {self._size} bytes, not {n} at {offset}")
        data = self._read(offset, n)
        self._send(b"D" + struct.pack("<q", len(data)) + data)

    def _read(self, offset: int, n: int) -> bytes:
        try:
            data: bytes = self._source.read_at(n, offset)
        except (pa.ArrowException, OSError, ValueError) as e:
            raise StorageUnavailable(f"reading an ORC file failed: {e}") from e
        return data

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._to.write(view) :]
        except BrokenPipeError as e:
            raise _Gone from e

    def _receive(self, n: int) -> bytearray:
        try:
            return orc_child.receive(self._from, n)
        except EOFError as e:
            raise _Gone from e


class _Pipe:
    """What Arrow's IPC reader reads from."""

    closed = False

    def __init__(self, source: io.RawIOBase) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """The pipe stays open for the next file."""

    def read(self, n: int) -> pa.Buffer:
        # Arrow's allocator keeps pages, which halves the time that large batches take.
        data = pa.allocate_buffer(n)
        try:
            orc_child.fill(self._source, memoryview(data).cast("B"))
        except EOFError as e:
            raise _Gone from e
        return data


def _validate(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as e:
        raise CorruptError(f"ORC stripe: {e}") from e


def _path(source: pa.NativeFile) -> bytes:
    """Where another process of this user finds a local file that is open here, if it does."""
    if not isinstance(source, pa.OSFile | pa.MemoryMappedFile) or not os.path.isdir("/proc/self/fd"):
        return b""
    return f"/proc/{os.getpid()}/fd/{source.fileno()}".encode()


def opened(source: pa.NativeFile) -> tuple[OrcProcess, OrcHead]:
    """A process that has this file open; :meth:`OrcProcess.leave` it in the end, whatever happens.

    Raises what :meth:`OrcProcess.open` raises.
    """
    while True:
        process = _take()
        head = None
        try:
            head = process.open(source)
        finally:
            if head is None:
                process.leave()
        if head is not None:
            return process, head


def _take() -> OrcProcess:
    while _idle:
        with contextlib.suppress(IndexError):
            process = _idle.pop()
            if process.usable:
                return process
            process.end()
    return OrcProcess()


@functools.cache
def _program() -> str:
    return inspect.getsource(orc_child)


@atexit.register
def end_idle() -> None:
    """End the processes that wait for a file."""
    while _idle:
        with contextlib.suppress(IndexError):
            _idle.pop().end()
