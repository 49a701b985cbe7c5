"""The page "Iceberg readers": its Python that needs bitlake alone runs; `make interop` runs that of the readers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bitlake.metadata.options import OPTIONS

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/iceberg-readers.md").read_text()


def test_examples(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    blocks = [b for b in blocks if "import polars" not in b and "from pyiceberg" not in b]
    assert len(blocks) == 3
    for block in blocks:
        exec(block.replace("/data/lake", str(tmp_path)), names)
    metadata = tmp_path / "default.db/orders/metadata"
    assert names["path"] == f"{metadata}/v1.metadata.json"
    assert (metadata / "version-hint.text").read_text() == "1"
    assert (tmp_path / "default.db/keyed/metadata/version-hint.text").exists()


def test_every_option_is_described() -> None:
    for name in OPTIONS:
        if name.startswith("metadata.iceberg."):
            assert name in PAGE or f"`{name.removeprefix('metadata.iceberg')}`" in PAGE, name
