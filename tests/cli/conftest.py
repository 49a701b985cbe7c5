from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli.command_server import CommandServer

import bitlake

ROOT = Path(__file__).resolve().parents[2]
STATES = ["PENDING", "SHIPPED", "LOST"]


@dataclass(frozen=True)
class Done:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Done]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A user's environment: no terminal, byte code kept where it is, home in a folder of the test."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BITLAKE_", "PYTHON")) and k != "NO_COLOR"}
    paths = {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    return {**kept, **paths, "XDG_STATE_HOME": str(folder / "state"), "TZ": "UTC", **more}


def orders(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "order_id": pa.array(ids, pa.int64()),
            "status": pa.array([STATES[i % 3] for i in ids]),
            "amount": pa.array([None if i % 7 == 0 else i / 4 for i in ids], pa.float64()),
        }
    )


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> bitlake.Lake:
    """Two tables: orders (append, indexed, two snapshots and a tag) and users (a primary key)."""
    made = bitlake.connect(tmp_path_factory.mktemp("lake") / "warehouse")
    table = made.create_table(
        "orders", orders(0, 1).schema, options={"file-index.bitmap.columns": "status"}, comment="what was bought"
    )
    table.append(orders(0, 30))
    table.history.create_tag("monday")
    table.append(orders(30, 60))
    users = made.create_table("users", pa.schema([("id", pa.int32()), ("name", pa.string())]), primary_key=["id"])
    users.upsert(pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["Ada", "Alan"]}))
    return made


@pytest.fixture(scope="session")
def commands(home: Path) -> Iterator[CommandServer]:
    server = CommandServer(environment(home))
    yield server
    server.close()


@pytest.fixture(scope="module")
def cli(lake: bitlake.Lake, home: Path, commands: CommandServer) -> Cli:
    """Run ``bitlake …`` as a process on the lake; ``at``: another lake, None for none."""

    def run(*arguments: str, at: str | None = lake.path, stdin: str = "", code: int = 0, **env: str) -> Done:
        named = {} if at is None else {"BITLAKE_LAKE": at}
        done = Done(*commands.run(arguments, environment(home, **named, **env), home, stdin))
        assert done.code == code, f"exit {done.code}: {done.out}{done.err}"
        assert "Traceback" not in done.err or "--debug" in arguments
        return done

    return run
