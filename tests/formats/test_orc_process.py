"""ORC is decoded in a process beside this one: damage and accidents end that process only, and are told apart."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as arrow_orc
import pytest
from formats.orc_files import decimals_file, strings_file
from long import exhaustive

from bitlake.errors import BitlakeError, CorruptError, StorageUnavailable
from bitlake.formats import orc
from bitlake.formats.orc import OrcProcess, opened, read_columns

GOOD = strings_file([3, 1], b"abcd")


@pytest.fixture(autouse=True)
def none_left_from_before() -> Iterator[None]:
    """Each test starts its own processes and counts them."""
    orc.end_idle()
    yield
    orc.end_idle()


def rows(data: bytes, columns: list[str] | None = None, **options: Any) -> list[Any]:
    batches = list(read_columns(pa.BufferReader(data), columns, **options))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def idle() -> list[int]:
    return [p._popen.pid for p in orc._idle]


def many(count: int = 1000, rows_a_stripe: int = 400) -> tuple[pa.Table, bytes]:
    table = pa.table(
        {
            "i": pa.array([None if n % 5 == 0 else n for n in range(count)], pa.int32()),
            "s": [f"text {n % 77}" for n in range(count)],
            "d": pa.array(range(count)).cast(pa.decimal128(25, 3)),
            "t": pa.array(np.arange(count) * 1_000_000_007, pa.timestamp("ns")),
            "z": pa.array(np.arange(count) * 1_000_000_000, pa.timestamp("ns", "UTC")),
            "l": pa.array([[n] * (n % 3) for n in range(count)], pa.list_(pa.int64())),
            "m": pa.array([[(f"k{n % 3}", n)] for n in range(count)], pa.map_(pa.string(), pa.int64())),
            "n": pa.array([{"a": n, "b": None if n % 2 else b"x"} for n in range(count)]),
        }
    )
    sink = io.BytesIO()
    with arrow_orc.ORCWriter(sink, stripe_size=1024, batch_size=rows_a_stripe) as writer:
        for start in range(0, count, rows_a_stripe):
            writer.write(table.slice(start, rows_a_stripe))
    return table, sink.getvalue()


def test_every_type_comes_through_as_arrow_reads_it() -> None:
    _, data = many()
    wanted = arrow_orc.ORCFile(pa.BufferReader(data)).read()
    batches = list(read_columns(pa.BufferReader(data), batch_size=130))
    assert pa.Table.from_batches(batches).equals(wanted, check_metadata=True)
    assert max(b.num_rows for b in batches) <= 130
    some = list(read_columns(pa.BufferReader(data), ["n", "i"]))
    assert pa.Table.from_batches(some).equals(wanted.select(["n", "i"]))
    none = list(read_columns(pa.BufferReader(data), []))
    assert (sum(b.num_rows for b in none), {b.num_columns for b in none}) == (wanted.num_rows, {0})


def test_local_files_of_every_kind(tmp_path: Path) -> None:
    table, data = many()
    path = tmp_path / "f.orc"
    path.write_bytes(data)
    for source in (
        str(path),
        pa.OSFile(str(path)),
        pa.memory_map(str(path)),
        pa.PythonFile(io.BytesIO(data), mode="r"),
    ):
        assert pa.Table.from_batches(read_columns(source, ["s", "i"])).equals(table.select(["s", "i"]))
    with pytest.raises(StorageUnavailable):
        list(read_columns(str(tmp_path)))


def test_columns_of_a_large_stripe_come_one_by_one() -> None:
    rows = 300_000
    table = pa.table({"a": np.arange(rows) * 7919 % 1_000_003, "b": np.arange(rows) * 104_729 % 1_000_003})
    sink = io.BytesIO()
    arrow_orc.write_table(table, sink)
    assert len(sink.getvalue()) > 1 << 20
    for columns in (["a", "b"], ["b", "a"], ["b"]):
        found = pa.Table.from_batches(read_columns(pa.BufferReader(sink.getvalue()), columns))
        assert found.equals(table.select(columns))


# The lengths add up to the four bytes that are there; each by itself points far beyond them.
WRAPPED = strings_file([(1 << 40) + 3, (1 << 64) - (1 << 40) + 1], b"abcd")
# ORC C++ allocates what a length asks for and goes on without memory: this one ends the process.
HUGE = strings_file([1 << 46, 1], b"abcd")
# The machine may have as much memory; the file must not take it.
LARGE = strings_file([9 << 30, 1], b"abcd")


def test_lengths_that_lead_outside_do_not_end_this_process() -> None:
    assert rows(GOOD) == [{"s": "abc"}, {"s": "d"}]
    (before,) = idle()
    for data in (HUGE, LARGE):
        with pytest.raises(CorruptError, match="SIG"):
            rows(data)
    with pytest.raises(BitlakeError):
        rows(WRAPPED)
    assert before not in idle()
    assert rows(GOOD) == [{"s": "abc"}, {"s": "d"}]


@pytest.mark.parametrize(
    ("footer", "stripe"),
    [
        (3, 2),
        exhaustive(2, 1),
        (1, 2),
        exhaustive(2, 1 << 40),
        exhaustive(1 << 40, 1 << 40),
        exhaustive(1 << 62, 1 << 62),
        (0, 2),
    ],
)
def test_row_counts_that_cannot_be_are_refused(footer: int, stripe: int) -> None:
    with pytest.raises(CorruptError):
        rows(strings_file([3, 1], b"abcd", rows=footer, stripe_rows=stripe))


def test_a_decimal_of_absurd_scale_takes_no_hours() -> None:
    assert rows(decimals_file([2, 0])) == [{"d": Decimal("0.01")}, {"d": Decimal("1.00")}]
    with pytest.raises(CorruptError, match="far longer"):
        rows(decimals_file([-(1 << 31)] * 400))


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(CorruptError, match="UTF8"):
        rows(strings_file([3, 1], b"ab\xffd"))


def test_what_the_decoder_prints_is_not_taken_for_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """ORC C++ warns of versions it does not know."""
    strange = GOOD.replace(b"\x00\x0c", b"\x00\x63")
    assert rows(strange) == rows(GOOD)
    assert capfd.readouterr() == ("", "")


def test_a_process_is_kept_for_the_next_file_also_after_an_error() -> None:
    rows(GOOD)
    (first,) = idle()
    with pytest.raises(CorruptError):
        rows(GOOD[:40])
    with pytest.raises(CorruptError):
        rows(b"")
    with pytest.raises(CorruptError, match="UTF8"):
        rows(strings_file([3, 1], b"ab\xffd"))
    rows(many()[1])
    assert idle() == [first]


def test_a_read_that_is_given_up_leaves_the_process_usable() -> None:
    table, data = many()
    reading = read_columns(pa.BufferReader(data), ["i"], batch_size=10)
    assert next(reading).num_rows == 10
    assert idle() == []
    reading.close()  # type: ignore[attr-defined]
    (pid,) = idle()
    assert pa.Table.from_batches(read_columns(pa.BufferReader(data), ["i"])).equals(table.select(["i"]))
    assert idle() == [pid]


def test_an_idle_process_that_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    rows(GOOD)
    kept = orc._idle[0]
    kept._to.close()  # it ends, as it does by itself after a while
    assert kept._popen.wait() == 0
    assert rows(GOOD) and idle() != [kept._popen.pid]


def test_a_process_that_ended_while_it_was_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    rows(GOOD)
    kept = orc._idle[0]
    spare, kept._to = kept._to, socket.socketpair()[0]
    spare.close()
    kept._popen.wait()
    kept._popen.returncode = None
    monkeypatch.setattr(OrcProcess, "usable", True)
    monkeypatch.setattr(kept._popen, "wait", lambda: setattr(kept._popen, "returncode", 0) or 0)
    monkeypatch.setattr(kept._popen, "kill", lambda: None)
    assert rows(GOOD) and idle() != [kept._popen.pid]


def test_a_process_that_somebody_killed_says_nothing_of_the_file() -> None:
    process, _ = opened(pa.BufferReader(GOOD))
    process.select([0])
    os.kill(process._popen.pid, signal.SIGKILL)
    with pytest.raises(StorageUnavailable, match="SIGKILL"):
        process.next()
    process.leave()
    assert idle() == []


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    process, _ = opened(pa.BufferReader(GOOD))
    process.select([0])
    monkeypatch.setattr(orc, "SILENCE_S", 0.05)
    os.kill(process._popen.pid, signal.SIGSTOP)
    with pytest.raises(CorruptError, match="did not come to an end"):
        process.next()
    process.leave()
    assert idle() == [] and process._popen.returncode == -signal.SIGKILL


class Failing(io.BytesIO):
    """A file whose store fails after some reads."""

    def __init__(self, data: bytes, error: Exception, reads: int) -> None:
        super().__init__(data)
        self.error, self.left = error, reads

    def read(self, n: int | None = -1) -> bytes:
        if not self.left:
            raise self.error
        self.left -= 1
        return super().read(n)


def test_a_large_file_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orc, "WHOLE_BYTES", 1000)
    table, data = many(3000)
    asked = []
    read = OrcProcess._read
    monkeypatch.setattr(OrcProcess, "_read", lambda self, at, n: asked.append(n) or read(self, at, n))
    found = pa.Table.from_batches(read_columns(pa.BufferReader(data), ["i"]))
    assert found.equals(table.select(["i"])) and len(asked) > 2 and sum(asked) < len(data)
    with pytest.raises(CorruptError):
        rows(data[: len(data) // 2])


@pytest.mark.parametrize("whole", [0, 1 << 30])
@pytest.mark.parametrize("error", [OSError("the disk is gone"), StorageUnavailable("no answer")])
def test_a_store_that_fails_is_not_a_corrupt_file(
    error: Exception, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orc, "WHOLE_BYTES", whole)
    with pytest.raises(StorageUnavailable, match=str(error)):
        list(read_columns(pa.PythonFile(Failing(many()[1], error, 0 if whole else 1), mode="r")))


def test_threads_read_at_once_each_through_its_own_process() -> None:
    table, data = many()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: pa.Table.from_batches(read_columns(pa.BufferReader(data), ["s"])), range(9)))
    assert all(f.equals(table.select(["s"])) for f in found)
    assert 1 <= len(idle()) <= orc.KEPT


def test_a_fork_leaves_the_processes_of_its_parent_alone() -> None:
    process = OrcProcess()
    process._owner += 1  # as the fork sees it
    assert not process.usable
    process._popen, popen = _Untouchable(), process._popen  # type: ignore[assignment]
    process.leave()
    assert idle() == [] and popen.wait(10) == 0  # it ended by itself when the last pipe to it closed


class _Untouchable:
    returncode = None


def test_a_machine_without_a_python_to_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(StorageUnavailable, match="/nowhere/python"):
        rows(GOOD)


READS = """
import pyarrow as pa
from bitlake.errors import CorruptError
from bitlake.formats.orc import read_columns

for data in (GOOD, DAMAGED, GOOD):
    try:
        print(pa.Table.from_batches(read_columns(pa.BufferReader(data))).to_pylist())
    except CorruptError as e:
        print("CorruptError", "SIG" in str(e))
"""
KERNEL = """
import asyncio, sys, types

class Stream:  # what a kernel puts in the place of standard output: there is no descriptor
    def __init__(self): self.text = ""
    def write(self, text): self.text += text
    def flush(self): pass

async def run(cells):
    sys.modules["__main__"] = types.ModuleType("__main__")
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), vars(sys.modules["__main__"]))
        await asyncio.sleep(0)

real, sys.stdout = sys.stdout, Stream()
asyncio.run(run(CELLS))
real.write(sys.stdout.text)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("caller", ["script", "standard input", "kernel"])
def test_callers_without_a_main_guard(tmp_path: Path, caller: str) -> None:
    """The process runs nothing of its caller: neither a script's first lines again, nor a notebook's."""
    program = f"print('once')\nGOOD, DAMAGED = {GOOD!r}, {HUGE!r}\n{READS}"
    if caller == "kernel":
        program = f"CELLS = {program.split('for data')[0], 'for data' + program.split('for data')[1]!r}\n{KERNEL}"
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [sys.executable, "-"] if caller == "standard input" else [sys.executable, str(script)]
    given = {"input": program} if caller == "standard input" else {"stdin": subprocess.DEVNULL}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root, timeout=60, **given)
    good = "[{'s': 'abc'}, {'s': 'd'}]"
    assert (done.stdout.splitlines(), done.stderr) == (["once", good, "CorruptError True", good], "")
