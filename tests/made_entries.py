"""Which manifest entries became objects of manifests that are held by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.manifest_columns import ManifestColumns


def made_entries(monkeypatch: pytest.MonkeyPatch) -> list[ManifestEntry]:
    """The entries that are made from now on, in their order; the list grows."""
    whole, made = ManifestColumns.entries, list[ManifestEntry]()

    def entries(self: ManifestColumns, places: Any) -> Iterator[ManifestEntry]:
        for entry in whole(self, places):
            made.append(entry)
            yield entry

    monkeypatch.setattr(ManifestColumns, "entries", entries)
    return made
