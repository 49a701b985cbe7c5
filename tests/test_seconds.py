from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("seconds", "counted"), [("0", "skipped"), ("1000", "passed")])
def test_nothing_begins_after_the_seconds_of_a_suite(seconds: str, counted: str) -> None:
    tests = str(Path(__file__).with_name("test_formatting.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", tests]
    variables = {**os.environ, "BITLAKE_SECONDS": seconds}
    made = subprocess.run(command, check=False, env=variables, cwd=Path(__file__).parent.parent, capture_output=True)
    last = made.stdout.decode().splitlines()[-1]
    assert made.returncode == 0 and counted in last
    assert ("passed" in last) is (counted == "passed"), last
