"""The stress of :mod:`maintenance`, shortly; ``make stress`` takes its time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.parametrize("mode", ["keyed", "append"])
def test_no_reader_of_what_is_kept_fails_while_all_else_goes(mode: str) -> None:
    script = Path(__file__).with_name("maintenance.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2])}  # as make starts it
    wanted = {"batches", "latest", "tag", "snapshot", "tags", "branches", "expired snapshots", "orphans"}
    for seconds in ("5", "30"):
        ran = subprocess.run(
            [sys.executable, str(script), "--seconds", seconds, "--modes", mode, "--age", "120"],
            env=environment, capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-5000:]
        assert ran.stdout.startswith(f"{mode}: ") and ran.stdout.strip().endswith("no reader of what was kept failed")
        done = {what: int(n) for n, what in re.findall(r"(\d+) ([\w ]+)", ran.stdout)}
        if wanted <= set(done):
            return  # a busy machine gets to all of it in the longer time only
    raise AssertionError(f"not done: {wanted - set(done)}")
