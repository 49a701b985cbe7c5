"""A REST server and a lake in its catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rest_server

from bitlake.lake import Lake, connect

OPTIONS = {"token.provider": "bear", "token": rest_server.TOKEN}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[rest_server.Server]:
    with rest_server.running(tmp_path) as made:
        yield made


@pytest.fixture
def lake(server: rest_server.Server) -> Lake:
    return lake_of(server)


def lake_of(server: rest_server.Server, **more: str) -> Lake:
    return connect(rest_server.WAREHOUSE, catalog="rest", uri=server.uri, catalog_options={**OPTIONS, **more})


def first(name: str, *what: object) -> rest_server.Plan:
    """Apply ``what``, one by one, to the next changes whose path ends with ``name``."""
    left = list(what)

    def plan(method: str, last: str, number: int) -> object:
        return left.pop(0) if last == name and method != "GET" and left else rest_server.PASS

    return plan  # type: ignore[return-value]
