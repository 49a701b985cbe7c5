"""What goes wrong is said in one line, with an exit code for scripts; and output is fit for where it goes."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from cli.conftest import Cli, environment
from long import exhaustive

import bitlake
from bitlake.cli.app import COMMANDS
from bitlake.cli.failures import wrapped
from bitlake.cli.output import Screen
from bitlake.cli.run import commands_like
from bitlake.tools.inspect.tree import Node, render


def one_line(text: str) -> str:
    [line] = text.splitlines()
    return line


def test_a_name_that_is_nearly_right(cli: Cli) -> None:
    assert one_line(cli("describe", "ordrs", code=1).err) == (
        "error: table 'default.ordrs' does not exist; did you mean orders?"
    )
    assert "no column 'stats'; did you mean 'status'?" in cli("explain", "orders", "-w", "stats = 1", code=1).err
    said = one_line(cli("sql", "--engine", "duckdb", "SELECT zzz FROM orders", code=1).err)
    assert said.startswith("error: no column 'zzz'; table 'default.orders' has columns ")
    said = one_line(cli("explain", "orders", "-w", "stats = ((", code=1).err)
    assert ": line 1, column 10: stats = ((" in said and "^" not in said
    assert cli("descibe", "orders", code=2).err.startswith("error: No such command 'descibe'. Did you mean 'describe'?")


def test_a_file_that_cannot_be_written(cli: Cli) -> None:
    said = one_line(cli("explain", "orders", "--html", "/nowhere/x.html", code=1).err)
    assert said == "error: cannot open or write /nowhere/x.html: No such file or directory"


@pytest.mark.parametrize(
    ("word", "commands"),
    [
        ("schema", ["describe"]),
        ("shema", ["describe"]),
        ("Vacuum", ["expire"]),
        ("ls", ["tables"]),
        ("rows", ["head", "count"]),
        ("hed", ["head"]),
        ("verfy", ["verify"]),
        ("Exprot", ["export"]),
        ("frobnicate", []),
        ("x", []),
    ],
)
def test_an_unknown_command_suggests_synonyms(word: str, commands: list[str]) -> None:
    """Bug: the nearest letters alone suggested ``head`` for ``schema``."""
    assert commands_like(word, list(COMMANDS)) == commands
    assert commands_like("rm", ["list", "create", "delete"]) == ["delete"]


def test_an_unknown_option_suggests_synonyms(cli: Cli) -> None:
    assert "No such option: --keep. Did you mean --retain-max?" in cli("expire", "orders", "--keep", "3", code=2).err
    assert "a condition needs --where" in cli("explain", "orders", "amount < 3", code=2).err


def test_a_folder_that_is_not_there_is_no_empty_lake(cli: Cli, tmp_path: Path) -> None:
    typo = str(tmp_path / "typo")
    for arguments in (["tables"], ["describe", "orders"], ["tables", "-d", "sales"]):
        assert f"no lake at {typo}: " in one_line(cli(*arguments, at=typo, code=1).err)
    [check] = [c for c in cli("doctor", "--json", at=typo).json["checks"] if c["what"] == "lake"]
    assert check["status"] == "absent" and "no lake at" in check["found"]


def test_errors_of_json_commands_are_json(cli: Cli) -> None:
    done = cli("describe", "ordrs", "--json", code=1)
    assert done.out == ""
    assert json.loads(done.err)["error"]["type"] == "NotFound"


@pytest.mark.parametrize(
    "arguments",
    [
        ["tables", "--nope"],
        ["describe"],
        ["history", "orders", "-n", "many"],
        ["history", "orders", "-n", "-1"],
        ["tables", "--option", "novalue"],
        ["expire", "orders", "--what", "everything"],
        ["export", "orders", "x.weird"],
    ],
    ids=" ".join,
)
def test_wrong_command_lines_are_usage(cli: Cli, arguments: list[str]) -> None:
    err = cli(*arguments, code=2).err
    assert err.startswith("error: ") and len(err.splitlines()) <= 3


def test_no_lake_named(cli: Cli) -> None:
    err = cli("tables", at=None, code=2).err
    assert "--lake" in err and "BITLAKE_LAKE" in err


def test_options_may_stand_before_the_command(cli: Cli, lake: bitlake.Lake) -> None:
    out = cli("--lake", lake.path, "--json", "tables", at=None).out
    assert json.loads(out)["lake"] == lake.path
    assert cli(f"--lake={lake.path}", "tables", "--names", at=None).out.startswith("default.orders\n")


def test_a_store_that_cannot_be_reached(cli: Cli) -> None:
    options = [
        "--option",
        "s3.endpoint=http://127.0.0.1:9",
        "--option",
        "s3.access-key=a",
        "--option",
        "s3.secret-key=secret-b",
    ]
    done = cli("tables", "--lake", "s3://bucket/lake", *options, at=None, code=1)
    assert one_line(done.err).startswith("error: ") and "secret-b" not in done.err
    assert cli("tables", "--lake", "ftp://x/y", at=None, code=1).err.startswith("error: storage scheme 'ftp://'")


def test_damaged_metadata(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    other = bitlake.connect(tmp_path / "w")
    table = other.create_table("t", lake.table("users").arrow_schema)
    table.append(lake.table("users").scan().to_arrow())
    (Path(table.path) / "snapshot" / "snapshot-1").write_text("{")
    assert "snapshot-1" in one_line(cli("describe", "t", at=other.path, code=1).err)
    done = cli("tables", at=other.path, code=1)
    assert "error: " in done.out and "default.t" in done.out


def test_debug_shows_the_stack(cli: Cli) -> None:
    err = cli("describe", "ordrs", "--debug", code=1).err
    assert "Traceback" in err and err.splitlines()[-1].startswith("error: ")


def test_no_colour_in_a_pipe(cli: Cli) -> None:
    for arguments in (["tables"], ["describe", "orders"], ["doctor"], ["-h"]):
        assert "\x1b" not in cli(*arguments).out


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["plain", "NO_COLOR"])
def test_colour_at_a_terminal(lake: bitlake.Lake, home: Path, env: dict[str, str], coloured: bool) -> None:
    out = at_terminal(["describe", "orders"], environment(home, BITLAKE_LAKE=lake.path, TERM="xterm-256color", **env))
    assert ("\x1b[" in out) is coloured and "order_id" in out


def at_terminal(arguments: list[str], env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "bitlake", *arguments], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    out = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not piece:
            break
        out += piece
    os.close(ours)
    assert process.wait(60) == 0
    return out.decode()


def test_whoever_reads_may_go_away(lake: bitlake.Lake, home: Path) -> None:
    env = environment(home, BITLAKE_LAKE=lake.path)
    with subprocess.Popen(
        [sys.executable, "-m", "bitlake", "export", "orders", "-", "-f", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
    assert process.returncode in (0, 141) and "Traceback" not in err and "Exception" not in err


@pytest.mark.parametrize("command", ["sql", "import orders - -f json"])
def test_a_closed_standard_input_is_empty(lake: bitlake.Lake, home: Path, command: str) -> None:
    line = f"{shlex.quote(sys.executable)} -m bitlake {command} <&-"
    env = environment(home, BITLAKE_LAKE=lake.path)
    done = subprocess.run(["sh", "-c", line], check=False, capture_output=True, text=True, env=env)
    expected = {"sql": (2, "error: the text contains no statement")}.get(command, (0, ""))
    assert (done.returncode, done.stderr.split("\n")[0]) == expected, done.stderr


@pytest.mark.parametrize(
    "command", ["describe orders", exhaustive("describe orders --json"), "tables --json", exhaustive("explain orders")]
)
def test_a_closed_standard_output_takes_nothing(lake: bitlake.Lake, home: Path, command: str) -> None:
    """Bug: "this is a bug in bitlake: 'NoneType' object has no attribute 'isatty'"."""
    line = f"{shlex.quote(sys.executable)} -m bitlake {command} >&-"
    env = environment(home, BITLAKE_LAKE=lake.path)
    done = subprocess.run(["sh", "-c", line], check=False, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", exhaustive("latin-1"), exhaustive("cp1252"), "utf-8"])
def test_characters_that_an_encoding_lacks_are_escaped(tmp_path: Path, encoding: str) -> None:
    """Bug: "this is a bug in bitlake: UnicodeEncodeError", also for the ticks and dashes of bitlake's own tables."""
    lake = bitlake.connect(tmp_path / "lake")
    lake.create_table("注文", pa.schema([("café", pa.int64())]))
    env = environment(tmp_path, BITLAKE_LAKE=lake.path, PYTHONIOENCODING=encoding)

    def run(*command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([sys.executable, "-m", "bitlake", *command], check=False, capture_output=True, env=env)

    names = run("tables")
    assert names.returncode == 0 and not names.stderr
    assert ("注文" if encoding == "utf-8" else "\\u6ce8\\u6587") in names.stdout.decode(encoding)
    done = run("describe", "注文", "--json")
    assert [c["name"] for c in json.loads(done.stdout.decode(encoding))["columns"]] == ["café"]
    failed = run("describe", "客", "--json")
    message = json.loads(failed.stderr.decode(encoding))["error"]["message"]
    assert failed.returncode == 1 and message == "table 'default.客' does not exist; there are 注文"


@pytest.mark.parametrize(
    "command",
    [["sql", b"SELECT \xff"], ["describe", b"\xff"], exhaustive(["count", "orders", "--where", b"status = '\xff'"])],
)
def test_arguments_that_are_not_utf8(lake: bitlake.Lake, home: Path, command: list[str | bytes]) -> None:
    """Bug: Spark's connection broke at such a statement, and "Spark's Java process does not answer"."""
    env = environment(home, BITLAKE_LAKE=lake.path, PYTHONUTF8="1")
    words = [sys.executable, "-m", "bitlake", *command]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "has bytes that are not UTF-8" in one_line(done.stderr)


def test_ctrl_c_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from bitlake.cli import app
    from bitlake.cli.run import Run

    def interrupted(run: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "lake", interrupted)
    assert app.main(["describe", "orders", "--lake", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


_TEXT = """\
Scan of default.orders at snapshot 2
  files      3 of 400 read; skipped by statistics: 200, skipped by index: 197, by deletion vectors: 0
  + day=2024-01-01/bucket-0/data-6fdc3f0e-57a2-4ea5-9b87-31f1e7a44be1-0.parquet: 3 of 10,000 rows by bitmap (status)
         → the latest snapshot does not have it, and older ones never change: it goes when these snapshots expire

Checked  3 snapshots, 2 schemas, 4 manifest lists, 12 manifests, 3 data files (3000 rows, 1.2 MB), 3 file indexes."""


@pytest.mark.parametrize("width", [24, 40, 80, 100])
def test_nothing_is_wider_and_nothing_is_lost(width: int) -> None:
    lines = wrapped(_TEXT, width).split("\n")
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(_TEXT.split())


def test_what_fits_stays_as_it_is() -> None:
    assert wrapped(_TEXT, 1000) == _TEXT


def test_what_goes_on_stands_below_the_text() -> None:
    lines = wrapped(_TEXT, 80).split("\n")
    assert lines[1:3] == [
        "  files      3 of 400 read; skipped by statistics: 200, skipped by index: 197,",
        "             by deletion vectors: 0",
    ]
    assert lines[4].startswith("    ") and lines[4][4] != " "
    assert lines[-1].startswith("         (3000 rows") and lines[-3] == ""


def test_a_path_is_broken_behind_a_slash() -> None:
    path = "/a/long/way/to/a/table/in/a/lake/default.db/orders/bucket-0/data-0.parquet"
    assert wrapped(path, 30).split("\n")[0] == "/a/long/way/to/a/table/in/a/"


def test_a_tree_stays_one() -> None:
    tree = Node("file", 0, 100)
    part = tree.add("part", 0, 50, {f"fact {i}": "some words" for i in range(9)})
    part.add("inside", 0, 10, {f"fact {i}": "some words" for i in range(9)})
    tree.add("last", 50, 50, {"said": "so " * 30})
    whole, lines = render(tree), render(tree, 70).split("\n")
    assert max(map(len, lines)) <= 70 < max(map(len, whole.split("\n")))
    inside = next(i for i, line in enumerate(lines) if "└─ inside" in line)
    assert lines[inside - 1].startswith("               │  │  fact") and lines[inside + 1].startswith(
        "               │     "
    )


def test_tables_in_a_pipe_are_drawn_as_rich_draws_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: texts with trailing blanks, aligned to the right, were not padded to the column's width."""
    columns = (">n", "text", ">m")
    rows = [
        ("a ", "x  ", "日本 "),
        ("longer", "  é", " b"),
        ("👨\u200d👩\u200d👧", "", "❤\ufe0f"),
        ("e\u0301", "y", "tab\t"),
    ]
    screen = Screen(1_000_000, False, False)
    screen.table(columns, rows)
    plain = capsys.readouterr().out
    monkeypatch.setattr(Screen, "_plain_table", lambda *_: False)
    screen.table(columns, rows)
    assert capsys.readouterr().out == plain
