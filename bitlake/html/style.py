"""The one style of all pages: light and dark, wide and narrow; and the same for a part of somebody else's page."""

from __future__ import annotations

import re

COLORS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c0")
"""Classes that colour the parts of a picture: seven that differ clearly, also in grey and for colour-blind readers,
``c8``, which is a pale ``c1``, and ``c0`` for the rest."""

ROOT = "bl"
"""The class of the element that the style is about: nothing outside of it changes its look."""

# & is that element; all other selectors are of what is inside.
_RULES = """
&{color-scheme:light dark;--bg:#fff;--fg:#1c2128;--dim:#59636e;--line:#d8dee4;--soft:#f6f8fa;
--c0:#b4bcc8;--c1:#2563eb;--c2:#d98a00;--c3:#0f9d76;--c4:#8b5cf6;--c5:#d1495b;--c6:#0e8fa3;--c7:#7a8699;--c8:#9dbcf7;
--bad:#b3261e;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
overflow-wrap:anywhere;text-align:left;padding:20px 16px 48px}
@media(prefers-color-scheme:dark){
&{--bg:#14171c;--fg:#e6eaf0;--dim:#9aa5b1;--line:#343b45;--soft:#1d2229;
--c0:#566070;--c1:#6ea8ff;--c2:#ffc04d;--c3:#34d3a0;--c4:#b79bff;--c5:#ff8a97;--c6:#4cc3d6;--c7:#8f9bb0;--c8:#385f9c;
--bad:#ff8a80}
}
*{box-sizing:border-box}
main{max-width:1120px;margin:0 auto}
h1,h2,h3{color:inherit;font-family:inherit}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 4px}
main>h1:not(:first-child){margin-top:56px}
h2{font-size:1.15rem;margin:36px 0 8px;padding-top:10px;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:20px 0 6px}
p{margin:6px 0 10px;max-width:75ch}
.dim,.sub{color:var(--dim)}
.sub{margin:0 0 12px}
code,pre,.names dd{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:none;color:inherit}
pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:8px 10px;margin:6px 0 10px;
white-space:pre-wrap}
.names{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 16px;margin:8px 0}
.names dt{color:var(--dim);font-weight:400}
.names dd{margin:0;align-self:center}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:8px;margin:12px 0}
.facts>div{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:8px 10px;min-width:0}
.facts dt,.facts dd{margin:0}
.facts dt{color:var(--dim);font-size:.82rem;font-weight:400}
.facts dd{font-size:1.15rem;font-weight:600}
small{display:block;font-weight:400;color:var(--dim);font-size:.8rem}
.scroll{overflow-x:auto;margin:8px 0 12px;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:.92rem;color:inherit}
th,td{text-align:left;padding:5px 10px 5px 0;border:0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--dim);font-weight:600;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;padding-right:20px}
td.t{min-width:9em}
.note{border-left:4px solid var(--c1);background:var(--soft);padding:8px 12px;margin:10px 0;border-radius:0 6px 6px 0}
.note.warn{border-color:var(--c2)}
.note.bad{border-color:var(--bad)}
.note.good{border-color:var(--c3)}
.note h3{margin-top:0}
.bars{display:grid;grid-template-columns:minmax(70px,max-content) minmax(60px,1fr) max-content;gap:4px 10px;
align-items:center;margin:8px 0 12px}
.bars .row,.bars .row>summary{display:contents}
.bars .l{max-width:34ch}
.bars .v{text-align:right;font-variant-numeric:tabular-nums;color:var(--dim)}
.lanes{font-size:.85rem}
.lanes summary{display:grid;grid-template-columns:15em minmax(0,1fr) 11em;gap:2px 12px;align-items:center;
cursor:pointer;list-style:none}
.lanes summary::-webkit-details-marker{display:none}
.lanes summary:hover{background:var(--soft)}
.lanes .l{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.9em;overflow:hidden;
text-overflow:ellipsis;white-space:nowrap}
.lanes .v{text-align:right;font-variant-numeric:tabular-nums;color:var(--dim)}
.lanes details>div{background:var(--soft);border-radius:6px;padding:6px 10px;margin:4px 0 8px}
svg{display:block;width:100%}
svg.bar{height:14px;background:var(--soft);border-radius:3px}
svg.lane{height:12px;border-radius:2px}
svg.tall{height:140px;background:var(--soft);border-radius:6px}
.axis{display:flex;justify-content:space-between;gap:8px;color:var(--dim);font-size:.82rem;margin:2px 0 8px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0;font-size:.88rem;padding:0;list-style:none}
.legend svg{display:inline-block;width:12px;height:12px;vertical-align:-1px;margin-right:5px}
.c0{fill:var(--c0)}
.c1{fill:var(--c1)}
.c2{fill:var(--c2)}
.c3{fill:var(--c3)}
.c4{fill:var(--c4)}
.c5{fill:var(--c5)}
.c6{fill:var(--c6)}
.c7{fill:var(--c7)}
.c8{fill:var(--c8)}
@media(max-width:520px){
.bars{display:block}
.bars .l{max-width:none}
.bars .row{display:grid;grid-template-columns:minmax(0,1fr) max-content;gap:2px 10px;margin-bottom:8px}
.bars .p{grid-column:1/-1;grid-row:2}
.lanes summary{grid-template-columns:minmax(0,1fr) max-content;margin-bottom:4px}
.lanes .p{grid-column:1/-1;grid-row:2}
.facts{grid-template-columns:repeat(2,minmax(0,1fr))}
.names{grid-template-columns:minmax(0,1fr);gap:0}
.names dd{margin-bottom:6px}
}
@media print{
h2{break-after:avoid}
.note,svg{break-inside:avoid}
}
"""


def _below(rules: str, root: str) -> str:
    """Rules whose selectors are those of elements inside ``root``; ``&`` stands for itself."""

    def one(found: re.Match[str]) -> str:
        return ",".join(root if s == "&" else f"{root} {s}" for s in found[1].split(",")) + "{"

    return re.sub(r"^([^@{}:\n][^@{}\n]*)\{", one, rules, flags=re.MULTILINE)


STYLE = _below(_RULES, f".{ROOT}")
"""Of pages and of parts of others' pages, such as notebooks."""
