"""The style of explanations in HTML: colours for light and dark, and a layout that folds on narrow screens."""

STYLE = """
.bl-page{--bg:#fff;--ink:#1c2128;--soft:#59636e;--line:#d8dee4;--panel:#f6f8fa;--empty:#eceff3;--time:#5b7083;
--read:#2563eb;--some:#9dbcf7;--index:#0f9d76;--vector:#d1495b;--bounds:#8b5cf6;--stats:#d98a00;--part:#7a8699;--other:#b4bcc8;
background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif;padding:1.25rem;box-sizing:border-box;
max-width:1200px;margin:0 auto}
@media(prefers-color-scheme:dark){body:has(>.bl-page){background:#14171c}
.bl-page{--bg:#14171c;--ink:#e6eaf0;--soft:#9aa5b1;--line:#343b45;--panel:#1d2229;--empty:#262c35;--time:#8ea3b8;
--read:#6ea8ff;--some:#385f9c;--index:#34d3a0;--vector:#ff8a97;--bounds:#b79bff;--stats:#ffc04d;--part:#8f9bb0;--other:#566070}}
.bl-page *{box-sizing:border-box}
.bl-page h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}
.bl-page h2{font-size:1.1rem;margin:1.75rem 0 .6rem}
.bl-page small,.bl-page p{color:var(--soft);font-size:.85rem}
.bl-page h1 small{font-size:.95rem;font-weight:400}
.bl-page p{margin:.4rem 0}
.bl-page dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:.5rem 0}
.bl-page dt{color:var(--soft)}
.bl-page dd{margin:0;overflow-wrap:anywhere;font-family:ui-monospace,monospace;font-size:.9rem}
.bl-page code,.bl-page pre{font-family:ui-monospace,monospace;font-size:.85rem;overflow-wrap:anywhere}
.bl-page pre{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.6rem;overflow-x:auto;
white-space:pre-wrap}
.bl-page ul{padding-left:1.2rem;margin:.3rem 0}.bl-page li{margin:.4rem 0;overflow-wrap:anywhere}
.bl-cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;margin:1rem 0}
.bl-cards div{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:.6rem .8rem;
display:flex;flex-direction:column}
.bl-cards b{font-size:1.35rem;line-height:1.3}.bl-cards span{font-size:.9rem}
.bl-page svg{display:block;width:100%;border-radius:2px;min-width:0}
.bl-row,.bl-file summary{display:grid;grid-template-columns:15rem minmax(0,1fr) 13rem;gap:.2rem .9rem;
align-items:center;padding:.12rem 0}
.bl-label{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;font-size:.9rem}
.bl-row .bl-label{white-space:normal}
.bl-value{font-variant-numeric:tabular-nums;font-size:.9rem;display:flex;gap:0 .6rem;flex-wrap:wrap;
align-items:baseline}
.bl-file summary{cursor:pointer;list-style:none;padding:.05rem 0}
.bl-file summary::-webkit-details-marker{display:none}
.bl-file summary:hover{background:var(--panel)}
.bl-file .bl-label{font-family:ui-monospace,monospace;font-size:.78rem}
.bl-file .bl-value{font-size:.78rem;color:var(--soft)}
.bl-file p{background:var(--panel);border-radius:6px;padding:.5rem .7rem;overflow-wrap:anywhere}
.bl-legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.85rem;margin:.4rem 0 .6rem}
.bl-legend i{display:inline-block;width:.85rem;height:.85rem;border-radius:2px;margin-right:.35rem;
vertical-align:-.1rem}
.bl-scroll{overflow-x:auto}
.bl-page table{border-collapse:collapse;width:100%;font-size:.9rem}
.bl-page th,.bl-page td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
.bl-page th{color:var(--soft);font-weight:500}
.bl-page td small{display:block}.bl-page .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
rect.bl-read,path.bl-read{fill:var(--read)}i.bl-read{background:var(--read)}
path.bl-some{fill:var(--some)}i.bl-some{background:var(--some)}
rect.bl-index,path.bl-index{fill:var(--index)}i.bl-index{background:var(--index)}
rect.bl-vector,path.bl-vector{fill:var(--vector)}i.bl-vector{background:var(--vector)}
rect.bl-bounds,path.bl-bounds{fill:var(--bounds)}i.bl-bounds{background:var(--bounds)}
rect.bl-stats,path.bl-stats{fill:var(--stats)}i.bl-stats{background:var(--stats)}
rect.bl-part,path.bl-part{fill:var(--part)}i.bl-part{background:var(--part)}
rect.bl-other,path.bl-other{fill:var(--other)}i.bl-other{background:var(--other)}
rect.bl-time{fill:var(--time)}rect.bl-empty{fill:var(--empty)}
@media(max-width:700px){.bl-page{padding:.8rem}
.bl-row,.bl-file summary{grid-template-columns:minmax(0,1fr) auto}
.bl-row svg,.bl-file svg{grid-column:1/-1;grid-row:2}.bl-file .bl-value{text-align:right}
.bl-page th,.bl-page td{padding:.3rem .35rem}.bl-page .bl-wide{display:none}.bl-page td:first-child{min-width:9rem}}
"""
"""Every rule is about elements below ``.bl-page``, so that a notebook around it stays as it is."""
