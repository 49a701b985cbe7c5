"""Tables and index payloads that Apache Paimon (Java) wrote, with its answers."""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"


@functools.cache
def _root() -> Path:
    archive = DATA / "paimon-java.tar.xz"
    mark = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    root = Path(tempfile.gettempdir()) / f"bitlake-fixtures-{os.getuid()}-{mark}"
    if not root.exists():
        # Unpack aside and rename, so that parallel test processes never see half a folder.
        aside = Path(tempfile.mkdtemp(prefix="bitlake-fixtures-"))
        with tarfile.open(archive) as tar:
            tar.extractall(aside, filter="data")
        try:
            aside.rename(root)
        except OSError:
            shutil.rmtree(aside)
    return root / "paimon-java"


def warehouse() -> Path:
    """The unpacked warehouse; read-only by convention: copy a table before writing to it."""
    return _root() / "warehouse"


def copy_warehouse(to: Path, *tables: str) -> Path:
    """Copy the named tables into a warehouse of their own under ``to``; returns it."""
    for name in tables:
        shutil.copytree(warehouse() / "default.db" / name, to / "default.db" / name)
    return to


@functools.cache
def expected() -> dict[str, list[dict[str, Any]]]:
    """By table: a list of {sql, rows} that Paimon's Spark connector answered."""
    tables: dict[str, list[dict[str, Any]]] = json.loads((_root() / "expected.json").read_text())["tables"]
    return tables


def asks_everything() -> bool:
    """Whether Spark is asked all that Paimon answered (``make versions``), and not a part that shows each kind."""
    return os.environ.get("BITLAKE_TEST_FIXTURES") == "all"


def answered(tables: Iterable[str]) -> list[Any]:
    """A pytest parameter (table, SQL, rows) for each query that Paimon answered on these tables."""
    return [
        pytest.param(table, q["sql"], q["rows"], id=f"{table}-{i}")
        for table in tables
        for i, q in enumerate(expected()[table])
    ]


@functools.cache
def payloads() -> list[dict[str, Any]]:
    """The random index payloads with the answers of Paimon's reader, one dict a line."""
    with lzma.open(DATA / "index-payloads.jsonl.xz", "rt") as f:
        return [json.loads(line) for line in f]
