"""The stress of :mod:`lsm`, shortly; ``make stress`` takes its time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
def test_two_upserting_processes_and_a_compactor_lose_nothing() -> None:
    script = Path(__file__).with_name("lsm.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2])}  # as make starts it
    ran = subprocess.run(
        [sys.executable, str(script), "--seconds", "2"],
        env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["vectors", "merge-on-read", "dynamic-buckets"]
    assert all(line.endswith("nothing lost") for line in lines)
    assert all(int(n) > 0 for line in lines for n in re.findall(r"(\d+) (?:\+|upserts)", line))
