"""The README's examples, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
WAREHOUSE = "/tmp/lake"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def _pattern(output: str) -> str:
    """A regular expression for printed lines; ``…`` stands for anything."""
    return ".*".join(map(re.escape, output.split("…")))


def test_first_example_twice_without_spark(tmp_path: Path) -> None:
    code = _blocks("python")[0].replace(WAREHOUSE, str(tmp_path))
    (output,) = _blocks("text")
    checked = f"{code}\nimport sys; assert 'pyspark' not in sys.modules\n"
    for run, snapshot in ((1, 1), (2, 2)):
        done = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"run {run}: {done.stderr}"
        wanted = _pattern(output.replace("at snapshot 1", f"at snapshot {snapshot}"))
        assert re.fullmatch(wanted, done.stdout, re.DOTALL), done.stdout


def test_examples_with_spark(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code in _blocks("python"):
        exec(compile(code.replace(WAREHOUSE, str(tmp_path)), str(README), "exec"), names)
    shown = capsys.readouterr().out
    assert "|   NEW|     3|" in shown
    assert re.search(r"\|before\|\n\+-+\+\n\| +4\|", shown)


def test_length() -> None:
    assert len(README.read_text().splitlines()) <= 80
