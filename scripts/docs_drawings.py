"""The drawings of the documentation: boxes with words, as inline SVG that follows the page's colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape

_H = 26


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def _box(x: float, y: float, width: float, words: str, kind: str = "b", height: float = _H) -> str:
    rect = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" class="{kind}"/>'
    return rect + _text(x + width / 2, y + height / 2 + 4.5, words)


def _row(x: float, y: float, cells: Iterable[tuple[float, str] | tuple[float, str, str]]) -> str:
    out = []
    for cell in cells:
        width, words, kind = (*cell, "b")[:3]
        out.append(_box(x, y, width, words, kind))
        x += width
    return "".join(out)


def _arrow(x1: float, y1: float, x2: float, y2: float, words: str = "") -> str:
    line = f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="a" marker-end="url(#bl-head)"/>'
    return line + (_text((x1 + x2) / 2, (y1 + y2) / 2 - 5, words, "s") if words else "")


def _drawing(height: int, title: str, *parts: str) -> str:
    head = (
        '<defs><marker id="bl-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" class="h"/></marker></defs>'
    )
    svg = f'<svg viewBox="0 0 720 {height}" role="img" aria-label="{escape(title)}">{head}{"".join(parts)}</svg>'
    return f'<figure class="drawing">{svg}<figcaption>{escape(title)}</figcaption></figure>'


def file_index() -> str:
    """A query against three files."""
    parts = [_box(250, 6, 220, "WHERE status = 'PENDING'", "q")]
    told = [
        ("data-1", "min 'A', max 'N'", "not asked", "skipped: outside its bounds", "x"),
        ("data-2", "min 'A', max 'S'", "bitmap: no row", "skipped: no row has it", "x"),
        ("data-3", "min 'A', max 'S'", "bitmap: rows 7, 90 217", "read: the pages with these rows", "r"),
    ]
    for i, (name, stats, index, fate, kind) in enumerate(told):
        x = 10 + i * 238
        parts.append(_arrow(360, 32, x + 112, 62))
        parts += [_box(x, 64, 224, name, "t"), _box(x, 90, 224, "statistics: " + stats), _box(x, 116, 224, index)]
        parts += [_arrow(x + 112, 142, x + 112, 164), _box(x, 166, 224, fate, kind)]
    return _drawing(
        200, "Statistics first, then the file's index; a data file is opened only for rows that may match", *parts
    )


def bitmap() -> str:
    """Version 2 of the bitmap index."""
    return _drawing(
        190,
        "A bitmap index, version 2: one lookup reads the header, one block, one bitmap; a value of one row needs none",
        _text(10, 18, "header", "s", "start"),
        _row(10, 24, [(70, "version 2"), (95, "100 000 rows"), (105, "50 000 values"), (60, "NULLs"), (70, "2 blocks"),
                      (110, "'A…' → block 0", "q"), (110, "'M…' → block 1", "q")]),
        _text(10, 76, "blocks: values in order", "s", "start"),
        _row(10, 82, [(150, "'Adam' → 0, 40 bytes"), (60, "…"), (120, "'Lucy' → row 12")]),
        _row(360, 82, [(150, "'Mary' → 40, 96 bytes", "r"), (60, "…"), (120, "'Zoe' → row 7")]),
        _arrow(575, 50, 440, 80),
        _text(10, 134, "body: Roaring bitmaps", "s", "start"),
        _row(10, 140, [(130, "rows of 'Adam'"), (200, "rows of 'Mary'", "r"), (90, "…"), (130, "rows that are NULL")]),
        _arrow(435, 108, 270, 138),
    )  # fmt: skip


def range_bitmap() -> str:
    """Codes and their slices."""
    rows = [("10", 0, "00"), ("25", 1, "01"), ("70", 2, "10"), ("25", 1, "01"), ("90", 3, "11")]
    parts = [_text(40, 18, "value", "s"), _text(125, 18, "code", "s"), _text(205, 18, "bits", "s")]
    for i, (value, number, bits) in enumerate(rows):
        y = 26 + i * 24
        parts += [
            _box(10, y, 60, value, height=20),
            _box(95, y, 60, str(number), height=20),
            _box(175, y, 60, bits, height=20),
        ]
    parts += [
        _arrow(245, 84, 290, 60), _arrow(245, 84, 290, 110),
        _box(295, 48, 180, "slice 1: rows 2, 4", "r"), _box(295, 98, 180, "slice 0: rows 1, 3, 4"),
        _text(600, 40, "value > 25", "s"), _box(510, 48, 200, "code > 1 = slice 1", "q"),
        _text(600, 100, "two bitmaps decide five rows;", "s"), _text(600, 116, "a file of 65 536 values has 16", "s"),
    ]  # fmt: skip
    return _drawing(
        152, "A range-bitmap: values become codes in their order, and each bit of the code is a bitmap", *parts
    )


def vectors() -> str:
    """Deletion vectors beside data files."""
    return _drawing(
        170,
        "Deletion vectors: data files stay as they are, and reading leaves the marked rows out",
        _text(10, 18, "data files", "s", "start"),
        _row(10, 24, [(70, "row 0"), (70, "row 1", "x"), (70, "row 2"), (70, "row 3", "x"), (70, "row 4")]),
        _text(370, 41, "data-1.parquet", "s", "start"),
        _row(10, 58, [(70, "row 0"), (70, "row 1"), (70, "row 2"), (70, "row 3"), (70, "row 4", "x")]),
        _text(370, 75, "data-2.parquet", "s", "start"),
        _text(10, 116, "one index file for the bucket", "s", "start"),
        _row(10, 122, [(60, "version"), (180, "data-1: {1, 3} with CRC", "r"), (180, "data-2: {4} with CRC", "r")]),
        _text(445, 139, "the index manifest says where each lies", "s", "start"),
        _arrow(120, 118, 120, 52), _arrow(300, 118, 325, 86),
    )  # fmt: skip


def lsm() -> str:
    """Levels of a bucket."""
    parts = [_text(60, 22, "new rows", "s"), _arrow(100, 18, 150, 18)]
    for i, label in enumerate(("k 3 … 90", "k 1 … 40", "k 8 … 77")):
        parts.append(_box(160 + i * 130, 6, 120, label, "r"))
    parts += [
        _text(560, 23, "level 0: files may overlap", "s", "start"), _arrow(300, 34, 300, 62),
        _text(340, 53, "compaction", "s"),
        _box(160, 66, 185, "k 1 … 50"), _box(350, 66, 190, "k 51 … 99"),
        _text(560, 83, "level 4: in order by key", "s", "start"),
        _arrow(300, 94, 300, 122),
        _box(160, 126, 90, "k 1 … 20", "q"), _box(255, 126, 90, "k 21 … 45", "q"), _box(350, 126, 90, "k 46 … 70", "q"),
        _box(445, 126, 95, "k 71 … 99", "q"), _text(560, 143, "level 5: the oldest rows", "s", "start"),
    ]  # fmt: skip
    return _drawing(
        162,
        "One bucket of a table with a primary key: of a key, the row in the highest sorted run is the newest",
        *parts,
    )


DRAWINGS: dict[str, Callable[[], str]] = {
    "file-index": file_index,
    "bitmap": bitmap,
    "range-bitmap": range_bitmap,
    "deletion-vectors": vectors,
    "lsm": lsm,
}
"""What stands in pages as ``<!-- drawing: name -->``."""
STYLE = """.drawing{margin:1.2em 0}.drawing svg{width:100%;height:auto;max-width:760px;display:block}
.drawing figcaption{font-style:normal;color:var(--md-default-fg-color--light);max-width:none;margin:.4em 0 0;
font-size:.72rem}
.drawing text{font:12px var(--md-text-font-family,sans-serif);fill:var(--md-default-fg-color)}
.drawing text.s{font-size:11px;fill:var(--md-default-fg-color--light)}
.drawing rect{fill:var(--md-code-bg-color);stroke:var(--md-default-fg-color--light)}
.drawing rect.q{fill:#2563eb33;stroke:#2563eb}.drawing rect.r{fill:#0f9d7633;stroke:#0f9d76}
.drawing rect.x{fill:#d1495b22;stroke:#d1495b;stroke-dasharray:4 3}.drawing rect.t{fill:none}
.drawing path.a{stroke:var(--md-default-fg-color--light);fill:none}
.drawing path.h{fill:var(--md-default-fg-color--light)}
"""
