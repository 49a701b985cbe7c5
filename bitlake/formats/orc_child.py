"""The program of the process that decodes ORC files for :mod:`bitlake.formats.orc`.

It runs by itself, so it imports pyarrow and the standard library only.  Frames on its standard input and output, each
one byte of kind and little-endian numbers::

    in                                             out
    O  i8 bytes of the file, i8 n,  open it;       H  i8 rows, i8 n, n bytes     the file's Arrow schema (IPC)
       n bytes (all of it, or none),
       i4 n, n bytes (a path, or none)
    S  i4 n, n i4                   these columns  (no answer)
    N                               next stripe    P  IPC stream of some columns of the stripe
                                                   B  the same, and these are the last;  L  of the last stripe
                                                   Z  there is no stripe
    C                               forget it      (no answer)

    while it answers O or N, of a file without bytes and path in O:
    D  i8 n, n bytes                these bytes    R  i8 offset, i8 n            of the file are needed

    instead of H, B, L, Z:                         E  u1 what, i8 n, n bytes     an error (text)

The columns of a large stripe go one by one, so that one is sent, checked and decoded at a time.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import struct
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.orc as orc

UNSUPPORTED, CORRUPT = 1, 0
"""What an ``E`` frame is about."""
IDLE_S = 30
"""A process without a file that hears nothing for so long ends."""
_I4, _I8, _I8_I8 = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<qq")
_SPLIT_BYTES = 1 << 20
_SLACK = 2 << 30
_PER_VALUE = 256
_PER_BYTE = 64
"""A file may take so much memory: the slack (or a quarter of the machine's), and for each of its values and bytes."""
_STEP_S = 0.5
_S_PER_VALUE = 1e-5
_S_PER_BYTE = 1e-6
"""A step (opening, a stripe) may take so much processor time, hundreds of times what it needs.  A decimal's scale, for
one, is worked off digit by digit, whatever it is: hours for damaged ones."""


class _Out:
    """Where frames go, each at once; two threads write them."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def frame(self, data: bytes) -> None:
        with self._lock:
            self._pipe.write(data)
            self._pipe.flush()

    def columns(self, kind: bytes, batch: pa.RecordBatch) -> None:
        with self._lock:
            self._pipe.write(kind)
            with pa.ipc.new_stream(self._pipe, batch.schema) as stream:
                stream.write_batch(batch)
            self._pipe.flush()


class _RemoteFile:
    """The file, its bytes asked for when the decoder wants them."""

    closed = False

    def __init__(self, size: int, out: _Out, answers: io.RawIOBase) -> None:
        self._size, self._out, self._answers = size, out, answers
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing to do: the file is the other side's."""

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, n: int = -1) -> bytearray:
        n = max(0, min(self._size - self._at if n < 0 else n, self._size - self._at))
        if n == 0:
            return bytearray()
        self._out.frame(b"R" + _I8_I8.pack(self._at, n))
        if receive(self._answers, 1) != b"D":
            raise OSError("unexpected answer")
        data = receive(self._answers, _I8.unpack(receive(self._answers, 8))[0])
        self._at += len(data)
        return data


def receive(pipe: io.RawIOBase, n: int) -> bytearray:
    """Exactly ``n`` bytes from a pipe; raises EOFError if it ends before."""
    data = bytearray(n)
    fill(pipe, memoryview(data))
    return data


def fill(pipe: io.RawIOBase, view: memoryview) -> None:
    """Read from a pipe until ``view`` is full; raises EOFError if it ends before."""
    while view:
        got = pipe.readinto(view)
        if not got:
            raise EOFError
        view = view[got:]


def silent(pipe: io.RawIOBase, seconds: float) -> bool:
    """Whether nothing comes (nor the end) for so long; never on systems that cannot tell."""
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLIN)
    return not poll.poll(seconds * 1000)


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) or 1


class _Session:
    """One opened file."""

    def __init__(self, size: int, whole: bytearray, path: str, out: _Out, inp: io.RawIOBase) -> None:
        self._out = out
        self._size = size
        limit_memory(_PER_BYTE * size)
        self._file: Any = orc.ORCFile(_source(size, whole, path, out, inp))
        self._columns: list[int] = []
        self._stripe = 0
        self.seconds = _STEP_S + _S_PER_BYTE * size

    def head(self) -> bytes:
        """The answer to O."""
        schema: pa.Schema = self._file.schema
        values = min(max(self._file.nrows, 0), 1 << 40) * sum(_leaves(f.type) for f in schema)
        limit_memory(_PER_BYTE * self._size + _PER_VALUE * values)
        self.seconds += _S_PER_VALUE * values
        raw = schema.serialize()
        return b"H" + _I8_I8.pack(self._file.nrows, raw.size) + bytes(raw.to_pybytes())

    def select(self, columns: list[int]) -> None:
        """What S says."""
        self._columns = columns

    def next(self, sender: ThreadPoolExecutor) -> None:
        """Give the answer to N."""
        stripe, stripes = self._stripe, self._file.nstripes
        if stripe >= stripes:
            self._out.frame(b"Z")
            return
        self._stripe += 1
        split = self._size > _SPLIT_BYTES * stripes
        *before, last = [[c] for c in self._columns] if split else [self._columns]
        sent: Future[None] | None = None
        for columns in before:
            batch = self._file.read_stripe(stripe, columns=columns)
            if sent is not None:
                sent.result()
            sent = sender.submit(self._out.columns, b"P", batch)
        batch = self._file.read_stripe(stripe, columns=last)
        if sent is not None:
            sent.result()
        self._out.columns(b"B" if self._stripe < stripes else b"L", batch)


def _source(size: int, whole: bytearray, path: str, out: _Out, inp: io.RawIOBase) -> Any:
    if path:
        with contextlib.suppress(OSError):
            return pa.OSFile(path)
    return pa.BufferReader(whole) if len(whole) == size else _RemoteFile(size, out, inp)


def limit_memory(more: int) -> None:
    """Let this process take ``more`` bytes than it had at its start, and some: damaged lengths ask for any amount.

    What goes by the file's own numbers is at most half of the machine's memory.
    """
    # A system without such limits goes without.
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = _AT_START + max(_SLACK, memory // 4) + min(more, memory // 2)
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def limit_time(seconds: float) -> None:
    """End this process (SIGPROF) when it has used so much processor time from now on; 0 for no limit."""
    with contextlib.suppress(AttributeError, OSError):
        signal.setitimer(signal.ITIMER_PROF, min(seconds, 1e6))


def _address_space() -> int:
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 1 << 30


def serve(inp: io.RawIOBase, pipe: BinaryIO) -> None:
    """Answer frames until the other side goes."""
    session: _Session | None = None
    out, sender = _Out(pipe), ThreadPoolExecutor(1)
    while session is not None or not silent(inp, IDLE_S):
        kind = bytes(receive(inp, 1))
        try:
            if kind == b"O":
                size, n = _I8_I8.unpack(receive(inp, 16))
                whole = receive(inp, n)
                path = receive(inp, _I4.unpack(receive(inp, 4))[0])
                limit_time(_STEP_S + _S_PER_BYTE * size)
                session = _Session(size, whole, os.fsdecode(bytes(path)), out, inp)
                out.frame(session.head())
            elif kind == b"S" and session is not None:
                (n,) = _I4.unpack(receive(inp, 4))
                session.select(list(struct.unpack(f"<{n}i", receive(inp, 4 * n))))
            elif kind == b"N" and session is not None:
                limit_time(session.seconds)
                session.next(sender)
            else:
                session = None
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, MemoryError) as e:
            session = None
            text = f"{type(e).__name__}: {e}".encode(errors="replace")[:2000]
            what = UNSUPPORTED if isinstance(e, NotImplementedError) else CORRUPT
            out.frame(b"E" + struct.pack("<Bq", what, len(text)) + text)
        limit_time(0)


def main() -> None:
    """Run as the other side's child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side decides what an interrupt means
    with contextlib.suppress(AttributeError):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # What native code prints must not come between frames.
    inp, out = io.FileIO(0, "rb"), os.fdopen(os.dup(1), "wb", 1 << 16)
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):
        serve(inp, out)
    os._exit(0)


_AT_START = _address_space()

if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    main()
