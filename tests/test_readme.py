"""The README's ten lines, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def test_ten_lines_of_use(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code.replace("file:///tmp/lake", tmp_path.as_uri()), str(README), "exec"), names)
    shown = capsys.readouterr().out
    assert "order_id" in shown
    assert names["scan"].to_arrow().to_pydict() == {"order_id": [1]}
    assert "status" in names["scan"].explain()
