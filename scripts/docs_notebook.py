"""Run the notebooks of docs/notebooks and put them into .site/docs as pages with what they printed.

Runs in the environment of the documentation, which has a Jupyter kernel; a cell that fails ends it.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    """Run each."""
    target = ROOT / ".site" / "docs" / "notebooks"
    target.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(ROOT)
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        book = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(book, timeout=300, resources={"metadata": {"path": folder}}).execute()
        (target / f"{path.stem}.md").write_text("\n\n".join(map(_cell, book.cells)) + "\n", encoding="utf-8")
        print(f"ran {path.name}: {sum(c.cell_type == 'code' for c in book.cells)} cells")


def _cell(cell: Any) -> str:
    if cell.cell_type != "code":
        return str(cell.source)
    return "\n\n".join([f"```python\n{cell.source}\n```", *filter(None, map(_output, cell.outputs))])


def _output(output: Any) -> str:
    if output.output_type == "stream":
        text = output.text if output.name == "stdout" else ""
    else:
        text = output.get("data", {}).get("text/plain", "")
    text = _COLOUR.sub("", text).rstrip()
    return f"```text\n{text}\n```" if text else ""


if __name__ == "__main__":
    main()
