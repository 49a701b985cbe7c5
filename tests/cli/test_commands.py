"""Every command that needs no Spark, as a process: what a person reads, and what a program does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cli.conftest import Cli, environment, orders

import bitlake
from bitlake.cli import doctor


def test_tables(cli: Cli) -> None:
    lines = cli("tables").out.splitlines()
    assert lines[0].split() == ["table", "primary", "key", "rows", "last", "commit"]
    assert lines[1].startswith("default.orders  –") and " 90  20" in lines[1]
    found = cli("tables", "--json").json
    assert [(t["database"], t["table"], t["rows"], t["primary_key"]) for t in found["tables"]] == [
        ("default", "orders", 90, []),
        ("default", "users", 2, ["id"]),
    ]
    assert cli("tables", "--names").out == "default.orders\ndefault.users\n"


def test_describe(cli: Cli) -> None:
    out = cli("describe", "orders").out
    assert "comment   what was bought\n" in out and "rows      90\n" in out
    assert "status    STRING  " in out and "bitmap" in out
    found = cli("describe", "ORDERS", "--json").json
    assert found["table"] == "default.orders" and found["snapshot"] == 2
    assert found["columns"][1] == {
        "name": "status",
        "type": "STRING",
        "nullable": True,
        "indexes": ["bitmap"],
        "default": None,
        "comment": None,
    }
    assert cli("describe", "users", "--json").json["primary_key"] == ["id"]


def test_rows_are_those_of_a_query(cli: Cli, tmp_path: Path) -> None:
    """Bug: commands left out the partitions of ``scan.fallback-branch``."""
    lake = bitlake.connect(tmp_path / "lake")
    table = lake.create_table("t", pa.schema([("p", pa.string()), ("id", pa.int32())]), partition_by=["p"])
    table.history.create_branch("late")
    lake.table("t$branch_late").append(pa.table({"p": ["b"], "id": pa.array([2], pa.int32())}))
    table.append(pa.table({"p": ["a"], "id": pa.array([1], pa.int32())}))
    table.alter_options({"scan.fallback-branch": "late"})
    assert cli("count", "t", at=lake.path).out.strip() == "2"
    assert cli("head", "t", "--json", at=lake.path).json["rows"] == [["a", 1], ["b", 2]]


def test_history(cli: Cli) -> None:
    lines = cli("history", "orders").out.splitlines()
    assert lines[0].split() == ["id", "committed", "kind", "operation", "change", "rows", "tags"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "1"]
    assert lines[1].split()[-2:] == ["+60", "90"] and lines[2].split()[-3:] == ["+30", "30", "monday"]
    found = cli("history", "orders", "--json", "-n", "1").json
    assert found["total"] == 2 and [s["id"] for s in found["snapshots"]] == [2]
    assert "1 earlier snapshot: --limit 0 shows all" in cli("history", "orders", "-n", "1").out


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_a_shown_time_is_that_of_its_snapshot_in_every_zone(cli: Cli, zone: str) -> None:
    """Bug: local times were shown without their zone and cut to seconds, and read in the zone of --timezone."""
    history = cli("history", "orders", TZ=zone).out.splitlines()
    committed = re.search(r"\d{4}-\d\d-\d\d [\d:.]+Z", history[2])
    assert committed is not None and history[2].startswith(" 1 ")
    found = cli("--timezone", zone, "count", "orders", "--timestamp", committed[0], "--json", TZ=zone).json
    assert found["rows"] == 30
    assert committed[0] in cli("tag", "list", "orders").out


def test_files(cli: Cli, lake: bitlake.Lake) -> None:
    out = cli("files", "orders").out
    assert out.splitlines()[0].split() == ["bucket", "rows", "size", "index", "file"]
    assert out.splitlines()[-1].startswith("2 files, 90 rows, ")
    found = cli("files", "orders", "--json").json
    assert found["total"]["rows"] == 90 and {Path(f["path"]).stat().st_size == f["bytes"] for f in found["files"]} == {
        True
    }
    assert cli("files", "orders", "--tag", "monday", "--json").json["total"]["rows"] == 30
    assert cli("files", "orders", "--snapshot", "1", "--json").json["snapshot"] == 1


def test_explain(cli: Cli, home: Path) -> None:
    out = cli("explain", "orders", "--where", "status = 'NONE'").out
    assert "files      0 of 2 read; skipped by file index: 2" in out
    found = cli("explain", "orders", "-w", "status = 'LOST'", "--analyze", "--json").json
    assert found["plan"]["rows"]["returned"] == 30 if "plan" in found else found
    cli("explain", "orders", "-w", "status = 'LOST'", "--html", "page.html")
    assert (home / "page.html").read_text().startswith("<!")
    cli("explain", code=2)


def test_inspect(cli: Cli, lake: bitlake.Lake) -> None:
    assert "snapshot" in cli("inspect", "-t", "orders", "snapshot-2").out
    name = lake.table("orders")._core.state().entries()[0].file.file_name
    tree = cli("inspect", "-t", "orders", name, "--json").json
    assert tree["faults"] == [] and tree["path"].endswith(name)
    assert "50 41 52 31" in cli("inspect", "-t", "orders", name, "--hex", "0:16").out
    cli("inspect", "-t", "orders", name, "--hex", "x", code=2)


def test_verify(cli: Cli) -> None:
    assert "no fault found" in cli("verify", "orders").out
    found = cli("verify", "orders", "--quick", "--json").json
    assert found["ok"] and found["findings"] == [] and not found["deep"]


def test_verify_finds_and_repairs(cli: Cli, lake: bitlake.Lake) -> None:
    table = lake.create_table(
        "broken",
        orders(0, 1).schema,
        options={"file-index.bitmap.columns": "status", "file-index.in-manifest-threshold": "1 b"},
    )
    table.append(orders(0, 30))
    [index] = Path(table.path).rglob("*.index")
    index.unlink()
    out = cli("verify", "broken", code=1).out
    assert "index-missing" in out and index.name in out
    plan = cli("verify", "broken", "--repair", "--json", code=1).json
    assert plan["repair"]["actions"] and not plan["repair"]["done"]
    assert "repaired in snapshot 2" in cli("verify", "broken", "--repair", "--yes").out
    assert lake.table("broken")._core.state().entries()[0].file.extra_files != (
        index.name,
    )  # snapshot 1 names it for ever
    lake.drop_table("broken")


def test_advise(cli: Cli) -> None:
    assert "Advice for default.orders at snapshot 2" in cli("advise", "orders").out
    found = cli("advise", "orders", "-q", "status = 'LOST'", "--json").json
    assert [c["column"] for c in found["columns"]] == ["order_id", "status", "amount"]
    cli("advise", "orders", "--engine", "none", code=2)
    cli("advise", "orders", "--layout", code=2)


def test_advise_carried_out_is_measured(cli: Cli, lake: bitlake.Lake) -> None:
    random = np.random.default_rng(6)
    rows = pa.table({"id": random.permutation(150_000), "note": [random.bytes(24).hex() for _ in range(150_000)]})
    lake.create_table("visits", rows.schema).append(rows)
    asked = ("advise", "visits", "-q", "SELECT * FROM visits WHERE id = 77")
    out = cli(*asked, "--apply", "--yes").out
    assert "CALL sys.rewrite_file_index(table => 'default.visits');" in out and out.count("Advice for") == 1
    told, measured = out.split("Measured")
    assert re.search(r"^  id +[\d.]+ MB +[\d.]+ MB$", measured, re.MULTILINE), measured
    assert re.search(r"^  building +[\d.]+ s +[\d.]+ s$", measured, re.MULTILINE)
    assert re.search(r"^  saved a query +[\d.]+ MB +[\d.]+ MB$", measured, re.MULTILINE)
    (column, _) = cli(*asked, "--json").json["columns"]
    assert column["action"] == "keep" and column["index"] in told
    lake.drop_table("visits")


def test_report(cli: Cli, home: Path) -> None:
    assert cli("report", "orders").out == "wrote orders.html: the report of default.orders\n"
    assert "default.orders" in (home / "orders.html").read_text()
    assert cli("report", "orders", "--json").json["snapshot"]["id"] == 2


def test_tags_and_branches(cli: Cli) -> None:
    assert (
        cli("tag", "create", "orders", "tuesday", "--keep", "30d").out
        == "created tag tuesday of default.orders, snapshot 2\n"
    )
    assert "bitlake tag move orders tuesday" in cli("tag", "create", "orders", "tuesday", code=1).err
    cli("tag", "move", "orders", "tuesday", "--snapshot", "1")
    renamed = cli("tag", "rename", "orders", "tuesday", "wednesday").out
    assert renamed == "renamed tag tuesday of default.orders to wednesday\n"
    found = cli("tag", "list", "orders", "--json").json["tags"]
    assert [(t["name"], t["snapshot"]) for t in found] == [("monday", 1), ("wednesday", 1)]
    created = cli("branch", "create", "orders", "dev", "--tag", "wednesday").out
    assert created == "created branch dev of default.orders\n"
    lines = cli("branch", "list", "orders").out.splitlines()
    assert [line.split()[0] for line in lines] == ["branch", "main", "dev"] and lines[2].endswith(" 30")
    assert cli("describe", "orders$branch_dev", "--json").json["rows"] == 30
    cli("branch", "rename", "orders", "dev", "test")
    cli("branch", "delete", "orders", "test")
    cli("tag", "delete", "orders", "wednesday")
    assert cli("tag", "list", "orders").out.splitlines()[1:][0].split()[0] == "monday"
    cli("tag", "create", "orders", "x", "--keep", "7", code=2)


def test_compact_and_rewrite_index(cli: Cli, lake: bitlake.Lake) -> None:
    table = lake.create_table("small", orders(0, 1).schema)
    for i in range(3):
        table.append(orders(i, 1))
    assert cli("compact", "small", "--full").out.startswith("default.small: 3 files (")
    assert (
        cli("compact", "small").out == "default.small: nothing to compact; --full also merges files that are not due\n"
    )
    table.alter_options({"file-index.bloom-filter.columns": "order_id"})
    found = cli("rewrite-index", "small", "--json").json
    assert (found["files_rewritten"], found["indexes"]) == (1, ["bloom-filter(order_id)"])
    assert "the one file has the indexes" in cli("rewrite-index", "small").out
    lake.drop_table("small")


def test_iceberg_publishes_a_table(cli: Cli, lake: bitlake.Lake) -> None:
    table = lake.create_table("shared", orders(0, 1).schema)
    table.append(orders(0, 1))
    assert "metadata.iceberg.storage" in cli("iceberg", "shared", code=1).err
    table.alter_options({"metadata.iceberg.storage": "table-location"})
    path = f"{table.path}/metadata/v1.metadata.json"
    assert cli("iceberg", "shared", "--json").json == {"table": "default.shared", "metadata_file": path}
    assert cli("iceberg", "shared").out == f"{path}\n" and Path(path).exists()
    lake.drop_table("shared")


def test_expire_shows_its_plan_first(cli: Cli, lake: bitlake.Lake) -> None:
    table = lake.create_table("old", orders(0, 1).schema)
    for i in range(4):
        table.append(orders(i, 1))
    keep = ("--retain-max", "1", "--retain-min", "1")
    out = cli("expire", "old", *keep).out
    assert "snapshots       3: 1 to 3" in out and out.endswith("nothing deleted; --yes carries out the plan\n")
    assert len(table.history.snapshots()) == 4
    found = cli("expire", "old", *keep, "--dry-run", "--yes", "--json").json
    assert found["snapshots"] == [1, 2, 3] and not found["done"] and len(table.history.snapshots()) == 4
    assert cli("expire", "old", *keep, "--yes", "--json").json["done"]
    assert [s.id for s in table.history.snapshots()] == [4]
    assert cli("expire", "old", *keep, "--yes").out == "default.old: no snapshots to delete\n"
    assert cli("expire", "old", "--what", "orphans").out == "default.old: no orphans to delete\n"
    assert cli("expire", "old", "--what", "tags").out == "default.old: no tags to delete\n"
    assert "partition" in cli("expire", "old", "--what", "partitions", code=1).err
    cli("expire", "old", "--what", "tags", "--retain-max", "1", code=2)
    lake.drop_table("old")


def test_expire_deletes_old_tags_without_a_retention(cli: Cli, lake: bitlake.Lake) -> None:
    table = lake.create_table("tagged", orders(0, 1).schema)
    table.append(orders(0, 1))
    for name in ("early", "late"):
        table.history.create_tag(name)
    os.utime(f"{table.path}/tag/tag-early", (time.time() - 3 * 86_400,) * 2)
    expire = ("expire", "tagged", "--what", "tags", "--older-than", "2d", "--json")
    assert cli(*expire).json["tags"] == ["early"] and set(table.history.tags()) == {"early", "late"}
    assert cli(*expire, "--yes").json["done"] and set(table.history.tags()) == {"late"}
    lake.drop_table("tagged")


def test_expire_plans_as_many_partitions_as_the_option_allows(cli: Cli, lake: bitlake.Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    options = {"partition.expiration-time": "1 d", "partition.expiration-max-num": "1"}
    table = lake.create_table("daily", schema, partition_by=["day"], options=options)
    table.append(pa.table([[1, 2], ["2024-01-01", "2024-01-02"]], schema=schema))
    found = cli("expire", "daily", "--what", "partitions", "--yes", "--json").json
    assert found["partitions"] == [{"day": "2024-01-01"}] and found["done"]
    assert table.to_arrow(["id"]).column("id").to_pylist() == [2]
    lake.drop_table("daily")


def test_doctor(cli: Cli) -> None:
    pytest.importorskip("pyspark")  # the doctor looks for Java only beside it
    out = cli("doctor").out
    assert "pyarrow" in out and "Java" in out and " tables" in out
    found = cli("doctor", "--json").json
    assert found["ok"] and {"what", "status", "found", "fix"} == set(found["checks"][0])


def test_doctor_says_what_fixes_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file, where a folder should be")
    found = cli("doctor", "--json", at="s3x://nowhere", code=1).json
    [lake] = [c for c in found["checks"] if c["what"] == "lake"]
    assert lake["status"] == "problem" and "s3x" in lake["found"] and lake["fix"]


def test_doctor_keeps_sparks_classes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    kept: list[str] = []
    monkeypatch.setattr(doctor, "write_class_archive", lambda: kept.append("written"))
    monkeypatch.setattr(doctor, "class_archive", lambda: Path(__file__) if kept else None)

    def check(*arguments: str) -> dict[str, Any]:
        doctor.doctor.main(["--json", *arguments], standalone_mode=False)
        [found] = [c for c in json.loads(capfd.readouterr().out)["checks"] if c["what"] == "Spark's classes"]
        return found

    before = check()
    assert (before["status"], before["fix"]) == ("absent", "bitlake doctor --spark-classes") and not kept
    after = check("--spark-classes")
    assert after["status"] == "ok" and f"kept in {__file__}" in after["found"] and kept == ["written"]


_COMPLETE = """
bitlake() { "$PYTHON" -m bitlake "$@"; }
source "$SCRIPT"
COMP_WORDS=(bitlake "$@"); COMP_CWORD=$#; COMPREPLY=()
$(complete -p bitlake | sed 's/.* -F \\([^ ]*\\) .*/\\1/') bitlake
echo "${COMPREPLY[@]}"
"""


def test_completion(lake: bitlake.Lake, tmp_path: Path) -> None:
    """The script that --install-completion installs, in a bash: commands, tables of the lake, options and choices."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "bitlake"  # the script runs it by env
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bitlake "$@"\n')
    program.chmod(0o755)
    env = environment(tmp_path, BITLAKE_LAKE=lake.path, SHELL=bash)
    env["PATH"] = f"{program.parent}{os.pathsep}{env['PATH']}"

    def run(*arguments: str) -> str:
        return subprocess.run(arguments, env=env, check=True, capture_output=True, text=True).stdout

    (tmp_path / ".bashrc").write_text("alias x=y")
    for _ in range(2):
        assert run("bitlake", "--install-completion").startswith("installed completion for bash")
    script = tmp_path / ".local" / "share" / "bitlake" / "completion.bash"
    assert (tmp_path / ".bashrc").read_text() == f"alias x=y\nsource '{script}'\n"
    assert script.read_text() == run("bitlake", "--show-completion").removesuffix("\n")
    env |= {"PYTHON": sys.executable, "SCRIPT": str(script)}

    def completions(*words: str) -> list[str]:
        return run(bash, "--norc", "-c", _COMPLETE, "bash", *words).split()

    assert completions("des") == ["describe"]
    assert completions("describe", "ord") == ["orders"]
    assert completions("describe", "default.u") == ["default.users"]
    assert completions("expire", "orders", "--retain-m") == ["--retain-max", "--retain-min"]
    assert completions("expire", "orders", "--what", "p") == ["partitions"]
    assert completions("tag", "d") == ["delete"]


def test_completion_for_other_shells(cli: Cli, home: Path) -> None:
    cli("--install-completion", SHELL="/usr/bin/fish")
    assert "bitlake" in (home / ".config" / "fish" / "completions" / "bitlake.fish").read_text()
    assert "#compdef bitlake" in cli("--show-completion", SHELL="/bin/zsh").out
    assert "set SHELL" in cli("--show-completion", SHELL="/bin/rc", code=2).err


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("arguments", [["-h"], ["tag", "--help"], ["import", "-h"]], ids=" ".join)
def test_help(cli: Cli, arguments: list[str], columns: int) -> None:
    out = cli(*arguments, COLUMNS=str(columns)).out
    assert out.startswith("Usage: bitlake") and max(map(len, out.splitlines())) <= columns


_HELP = """
import json
from click.testing import CliRunner
from bitlake.cli.app import COMMANDS, cli
print(json.dumps({n: CliRunner().invoke(cli, [n, "--help"], terminal_width=80).output for n in COMMANDS}))
"""


def test_help_of_every_command(home: Path) -> None:
    """Arguments, the command's options and those of every command, each with a text."""
    done = subprocess.run([sys.executable, "-c", _HELP], env=environment(home), capture_output=True, check=True)
    for name, out in json.loads(done.stdout).items():
        if name in ("tag", "branch"):
            assert "\nCommands:\n  list " in out
            continue
        sections = re.split(r"^(Arguments|Options|Lake and output):$", out, flags=re.MULTILINE)
        assert "--lake URL" in sections[-1] and "-h, --help" in sections[-3], name
        bare = [line for line in out.splitlines() if re.fullmatch(r"  -{1,2}[a-z]\S*(, --\S+)?( [A-Z=]+)?", line)]
        assert not bare, bare


def test_head(cli: Cli) -> None:
    first = cli("head", "orders", "-n", "3", "--json").json
    assert len(first["rows"]) == 3 and first["truncated"] is False
    everything = cli("head", "orders", "-n", "1000", "--format", "json").out.splitlines()
    assert len(everything) == 90
    chosen = cli("head", "orders", "-w", "order_id < 2", "-c", "order_id", "--format", "csv").out
    assert chosen.split()[0] == '"order_id"' and sorted(chosen.split()[1:]) == ["0", "1"]
    assert "did you mean 'order_id'" in cli("head", "orders", "-w", "order_idd = 1", code=1).err


def test_count(cli: Cli) -> None:
    assert cli("count", "orders").out == "90\n"
    assert cli("count", "orders", "-w", "order_id < 2", "--json").json == {"table": "orders", "rows": 2}
    assert cli("count", "orders", "--snapshot", "1").out == "30\n"
