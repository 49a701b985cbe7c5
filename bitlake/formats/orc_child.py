"""The program of the process that decodes ORC files for :mod:`bitlake.formats.orc`: pyarrow and the standard library.

Requests are pickled tuples, each answer a HEADER by which an Arrow IPC stream may follow::

    "open", size, data, path    H rows, stripes    and a stream with the schema
    "stripe", number, columns   B left, 0          and a stream of columns; ``left`` more such answers follow
    "close"                     no answer

Of a file without data and path, R (offset, length) asks for bytes, which are the next request.  E (length, whether it
is unsupported) and a text mean an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import resource
import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import pyarrow as pa

HEADER = struct.Struct("<cqq")
IDLE_S = 30
"""A process without a file that receives no request for so long ends, by SIGALRM."""
_SPLIT_BYTES = 1 << 20
"""The columns of larger stripes are sent one by one, each while the next is decoded and the one before is checked."""
_SLACK, _PER_VALUE, _PER_BYTE = 2 << 30, 256, 64
"""The memory a file may take: the slack (or a quarter of the machine's), and this much for each value and byte."""
_STEP_S, _S_PER_VALUE, _S_PER_BYTE = 0.5, 1e-5, 1e-6
"""The processor time that a step (opening, a stripe) may take: hundreds of times what it needs.  A decimal's scale, for
one, is worked off digit by digit, whatever it is: hours for damaged ones."""
_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, TypeError, MemoryError, struct.error)


class _Server:
    def __init__(self, pipe: socket.socket) -> None:
        self.requests, self._answers = pipe.makefile("rb"), pipe.makefile("wb", 1 << 16)
        self._lock, self._sender = Lock(), ThreadPoolExecutor(1)
        self._file: Any = None

    def run(self) -> None:
        while True:
            signal.alarm(0 if self._file else IDLE_S)
            name, *arguments = pickle.load(self.requests)
            signal.alarm(0)
            try:
                getattr(self, name)(*arguments)
            except _ERRORS as e:
                self._file = None
                text = f"{type(e).__name__}: {e}".encode(errors="replace")[:2000]
                self.send(b"E", len(text), isinstance(e, NotImplementedError), text)
            signal.setitimer(signal.ITIMER_PROF, 0)

    def open(self, size: int, data: bytes, path: str) -> None:
        from pyarrow import orc  # here, since the process that reads the answers imports this module without decoding

        _limit(_STEP_S + _S_PER_BYTE * size, _PER_BYTE * size)
        source: Any = pa.BufferReader(data) if len(data) == size else _RemoteFile(size, self)
        with contextlib.suppress(OSError):
            source = pa.OSFile(path) if path else source
        self._file = orc.ORCFile(source)
        rows, stripes, schema = self._file.nrows, self._file.nstripes, self._file.schema
        values = min(max(rows, 0), 1 << 40) * sum(_leaves(f.type) for f in schema)
        self._limits = _STEP_S + _S_PER_BYTE * size + _S_PER_VALUE * values, _PER_BYTE * size + _PER_VALUE * values
        self._split = size > _SPLIT_BYTES * stripes
        self.send(b"H", rows, stripes, schema)

    def stripe(self, number: int, columns: list[int]) -> None:
        _limit(*self._limits)
        groups = [[c] for c in columns] if self._split else [columns]
        sent: Any = None
        for left, group in zip(reversed(range(len(groups))), groups):
            batch = self._file.read_stripe(number, columns=group)
            if sent is not None:
                sent.result()
            if left:
                sent = self._sender.submit(self.send, b"B", left, 0, batch.schema, batch)
        self.send(b"B", 0, 0, batch.schema, batch)

    def close(self) -> None:
        self._file = None

    def send(self, kind: bytes, a: int, b: int, content: Any = b"", *batches: pa.RecordBatch) -> None:
        with self._lock:  # two threads send
            self._answers.write(HEADER.pack(kind, a, b))
            if isinstance(content, bytes):
                self._answers.write(content)
            else:
                with pa.ipc.new_stream(self._answers, content) as stream:
                    for batch in batches:
                        stream.write_batch(batch)
            self._answers.flush()


class _RemoteFile(io.RawIOBase):
    """The file, whose bytes the other side sends when the decoder wants them."""

    def __init__(self, size: int, server: _Server) -> None:
        self._size, self._server, self._at = size, server, 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, n: int = 0) -> bytes:
        self._server.send(b"R", self._at, max(0, min(n, self._size - self._at)))
        data: bytes = pickle.load(self._server.requests)
        self._at += len(data)
        return data


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) or 1


def _limit(seconds: float, memory: int) -> None:
    """End this process (SIGPROF) after so much processor time from now on, and give it no more memory than that."""
    signal.setitimer(signal.ITIMER_PROF, min(seconds, 1e6))
    with contextlib.suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        most = max(_SLACK, machine // 4) + min(memory, machine // 2)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(descriptor: int) -> None:
    """Run as the other side's child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other side decides what an interrupt means
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF, signal.SIGALRM})
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(EOFError, ConnectionError):
        _Server(socket.socket(fileno=descriptor)).run()
    os._exit(0)
