"""Elements: everything that is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias


class Markup(str):
    """Text that is HTML; any other text is escaped where it is put into an element."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
_VOID = frozenset({"br", "hr", "img", "meta", "rect", "line", "path", "circle"})
# Line ends and the like inside text would do no harm; what a terminal or browser does not show is made visible.
_UNSEEN = {i: chr(0x2400 + i) for i in range(32) if i not in (9, 10, 13)} | {127: "\u2421"}


def markup(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """The element ``<name>``; ``class_`` is the attribute ``class``, ``data_x`` is ``data-x``, None leaves one out."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not children:
        return Markup(f"<{name}{shown}>" if name in ("br", "hr", "img", "meta") else f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(children: Child) -> Markup:
    """Children one after the other: markup as it is, text escaped, None as nothing."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(_text(children))
    return Markup("".join(joined(child) for child in children))


def _text(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return escape(str(value).translate(_UNSEEN), quote=True)
