"""The stress of :mod:`stream`, shortly; ``make stress`` kills ten times (run by ``make long``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitlake.spark.source import read as streams


@pytest.mark.long
@pytest.mark.skipif(streams.admission is None, reason="PySpark 4.1 lets no Python source limit what it reads")
def test_a_killed_upsert_stream_ends_with_the_rows_of_its_input() -> None:
    script = Path(__file__).with_name("stream.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2])}  # as make starts it
    ran = subprocess.run(
        [sys.executable, str(script), "--kills", "1", "--ways", "sink"],
        env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip() == "sink: 6 batches, killed 1 times: every row once"
