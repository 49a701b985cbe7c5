"""The page itself: its style, sections, tables, facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bitlake.html.markup import Child, Markup, joined, markup

COLORS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c0")
"""Classes that colour a part of a picture: seven that can be told apart, also in grey and by the colour-blind, and
``c0`` for the rest."""

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2128;--dim:#59636e;--line:#d8dee4;--soft:#f6f8fa;--link:#0b5cad;
--c0:#b4bcc8;--c1:#2563eb;--c2:#d98a00;--c3:#0f9d76;--c4:#8b5cf6;--c5:#d1495b;--c6:#0e8fa3;--c7:#7a8699;
--good:#1a7f46;--warn:#9a5b00;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6eaf0;--dim:#9aa5b1;--line:#343b45;--soft:#1d2229;
--link:#7ab7ff;--c0:#566070;--c1:#6ea8ff;--c2:#ffc04d;--c3:#34d3a0;--c4:#b79bff;--c5:#ff8a97;--c6:#4cc3d6;--c7:#8f9bb0;
--good:#5fd08f;--warn:#f0b35a;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
overflow-wrap:anywhere}
main{max-width:1120px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 4px}
h2{font-size:1.15rem;margin:36px 0 8px;padding-top:10px;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:20px 0 6px}
p{margin:6px 0 10px;max-width:75ch}
.dim,.sub{color:var(--dim)}.sub{margin:0 0 12px}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:8px 10px;margin:6px 0 10px;
white-space:pre-wrap}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:8px;margin:12px 0}
.facts>div{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:8px 10px;min-width:0}
.facts dt,.facts dd{margin:0}.facts dt{color:var(--dim);font-size:.82rem}.facts dd{font-size:1.15rem;font-weight:600}
.facts small{display:block;font-weight:400;color:var(--dim);font-size:.8rem}
.scroll{overflow-x:auto;margin:8px 0 12px;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--dim);font-weight:600;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-right:20px}
td.t{min-width:9em}
.note{border-left:4px solid var(--c1);background:var(--soft);padding:8px 12px;margin:10px 0;border-radius:0 6px 6px 0}
.note.warn{border-color:var(--c2);color:inherit}.note.bad{border-color:var(--bad);color:inherit}
.note.good{border-color:var(--c3);color:inherit}.note h3{margin-top:0}
.bars{display:grid;grid-template-columns:minmax(70px,max-content) minmax(60px,1fr) max-content;gap:4px 10px;
align-items:center;margin:8px 0 12px}
.bars .l{max-width:34ch}.bars .v{text-align:right;font-variant-numeric:tabular-nums;color:var(--dim)}
svg{display:block;width:100%}svg.bar{height:14px;background:var(--soft);border-radius:3px}
svg.tall{height:140px;background:var(--soft);border-radius:6px}
.axis{display:flex;justify-content:space-between;gap:8px;color:var(--dim);font-size:.82rem;margin:2px 0 8px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0;font-size:.88rem;padding:0;list-style:none}
.legend svg{display:inline-block;width:12px;height:12px;vertical-align:-1px;margin-right:5px}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c5{fill:var(--c5)}
.c6{fill:var(--c6)}.c7{fill:var(--c7)}
.bars .row{display:contents}
@media(max-width:520px){.bars{display:block}.bars .l{max-width:none}
.bars .row{display:grid;grid-template-columns:minmax(0,1fr) max-content;gap:2px 10px;margin-bottom:8px}
.bars .p{grid-column:1/-1;grid-row:2}.facts{grid-template-columns:repeat(2,minmax(0,1fr))}}
@media print{h2{break-after:avoid}.note,svg{break-inside:avoid}}
"""


def page(title: str, *body: Child, subtitle: Child = None) -> str:
    """A whole page."""
    head = markup(
        "head",
        markup("meta", charset="utf-8"),
        markup("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Nothing is fetched, whatever a page may hold.
        markup("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        markup("title", title),
        markup("style", Markup(STYLE)),
    )
    top = [markup("h1", title), None if subtitle is None else markup("p", subtitle, class_="sub")]
    return f"<!doctype html>\n{markup('html', head, markup('body', markup('main', top, body)), lang='en')}\n"


def section(title: str, *body: Child, id: str | None = None) -> Markup:
    """A part of a page under a heading."""
    return markup("section", markup("h2", title), body, id=id)


def facts(items: Iterable[tuple[str, Child, Child]]) -> Markup:
    """Short facts as tiles: a name, a value, and what is to be said of it (None: nothing)."""
    return markup(
        "dl",
        [
            markup("div", markup("dt", name), markup("dd", value, None if more is None else markup("small", more)))
            for name, value, more in items
        ],
        class_="facts",
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[Child]], numbers: Iterable[int] = ()) -> Markup:
    """A table that scrolls by itself where it is too wide; ``numbers`` are the columns to align right."""
    right = frozenset(numbers)
    kinds = ["n" if i in right else "t" for i in range(len(headers))]
    head = markup("tr", [markup("th", name, class_=kind) for name, kind in zip(headers, kinds, strict=True)])
    body = [
        markup("tr", [markup("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)]) for row in rows
    ]
    inner = markup("table", markup("thead", head), markup("tbody", body))
    return markup("div", inner, class_="scroll", tabindex="0")


def code(text: str) -> Markup:
    """Something to type, on lines of its own."""
    return markup("pre", text)


def note(*body: Child, kind: str | None = None) -> Markup:
    """Something to notice; ``kind``: ``good``, ``warn`` or ``bad``."""
    return markup("div", joined(body), class_=f"note {kind}" if kind else "note")
