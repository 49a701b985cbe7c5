"""The tree that an inspection returns: nodes with offset, length, value and faults.

:class:`Source` fetches a file's bytes on access and counts them.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from bitlake.fileindex.description import Offset, Section, fault_of
from bitlake.fileindex.lazy_bytes import Fetch, LazyBytes
from bitlake.formatting import shortened
from bitlake.io import Store

_AHEAD = 4096

AVRO_MAGIC = b"Obj\x01"
ORC_MAGIC = b"ORC"


class Source:
    """A file, or bytes that stand inside of another.  What was fetched is kept; every access is checked.

    ``path`` names it; ``size`` in bytes.
    """

    def __init__(self, path: str, size: int, fetch: Fetch, ahead: int = _AHEAD) -> None:
        self.path = path
        self.size = size
        self.requests = 0
        self._fetch = fetch
        self.window = LazyBytes(self._counted, size, ahead)

    @staticmethod
    def of_file(store: Store, path: str) -> Source:
        """A file of a store; asks for its size only."""
        return Source(path, store.size(path), lambda offset, length: store.read_range(path, offset, length))

    @staticmethod
    def of_bytes(path: str, data: bytes) -> Source:
        """Bytes that are at hand, as an index embedded in a manifest."""
        return Source(path, len(data), lambda offset, length: data[offset : offset + length])

    def _counted(self, offset: int, length: int) -> bytes | memoryview:
        self.requests += 1
        return self._fetch(offset, length)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self.window.bytes_read

    def view(self, offset: int, length: int) -> bytes:
        """These bytes; raises :class:`bitlake.errors.CorruptError` where the file ends before."""
        return bytes(self.window.view(offset, length))

    def start(self, length: int) -> bytes:
        """The first ``length`` bytes, or all of a shorter file."""
        return self.view(0, min(length, self.size))

    def part(self, offset: int, length: int) -> LazyBytes:
        """A window on a part of it."""
        return LazyBytes(self.from_here(offset), length, 0)

    def from_here(self, offset: int) -> Callable[[int, int], memoryview]:
        """A ``fetch`` for a part that starts at ``offset``."""
        return lambda at, n: self.window.view(offset + at, n, ahead=0)


_MOST_TEXT = 100
_LEAST_ROOM = 24


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and at which byte of the file (None: not known)."""

    what: str
    offset: int | None

    def __str__(self) -> str:
        return self.what if self.offset is None else f"{self.what} (at byte {self.offset:,})"


@dataclass(frozen=True, slots=True)
class Node:
    """One part of a file.

    ``offset`` and ``size`` in bytes of the file; None where the part has no place of its own, as a record inside of a
    compressed block.  ``facts``: what the part says, plain values by name.  ``more``: parts that are not shown (None:
    there are some, how many is not known without reading on).  ``fault``: where reading this part ended.
    """

    name: str
    offset: int | None = None
    size: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[Node, ...] = ()
    more: int | None = 0
    fault: Fault | None = None

    def walk(self) -> Iterator[Node]:
        """This node and all below it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()

    def faults(self) -> list[Fault]:
        """Every fault in this part, in the order of the tree."""
        return [n.fault for n in self.walk() if n.fault is not None]

    def find(self, *path: str) -> Node:
        """The part below this one by names, each a child of the one before; raises :class:`KeyError`."""
        node = self
        for name in path:
            node = next((c for c in node.children if c.name == name), None)  # type: ignore[assignment]
            if node is None:
                raise KeyError(name)
        return node

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain values that JSON can hold."""
        out: dict[str, Any] = {"name": self.name, "offset": self.offset, "size": self.size}
        out.update({"facts": {k: plain(v) for k, v in self.facts.items()}} if self.facts else {})
        out.update({"children": [c.to_dict() for c in self.children]} if self.children else {})
        out.update({"more": self.more} if self.more != 0 else {})
        out.update({"fault": {"what": self.fault.what, "offset": self.fault.offset}} if self.fault else {})
        return out


@dataclass(slots=True)
class Tree:
    """A node while its file is being read; mutable, :meth:`done` makes the :class:`Node`."""

    name: str
    offset: int | None = None
    size: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    children: list[Tree] = field(default_factory=list)
    more: int | None = 0
    fault: Fault | None = None

    def add(
        self, name: str, offset: int | None = None, size: int | None = None, facts: Mapping[str, Any] | None = None
    ) -> Tree:
        """A new child; facts that are None are left out."""
        child = Tree(name, offset, size, {k: v for k, v in (facts or {}).items() if v is not None})
        self.children.append(child)
        return child

    def done(self) -> Node:
        """The finished node, with all below it."""
        children = tuple(c.done() for c in self.children)
        return Node(self.name, self.offset, self.size, dict(self.facts), children, self.more, self.fault)


def graft(tree: Tree, section: Section, base: int) -> None:
    """Add what an index says of its payload to ``tree``; the payload starts at byte ``base`` of the file."""
    tree.facts.update({k: base + v if isinstance(v, Offset) else v for k, v in section.facts.items()})
    tree.more = section.more
    if section.fault is not None:
        what, offset = section.fault
        tree.fault = Fault(what, tree.offset if offset is None else base + offset)
    for part in section.children:
        child = tree.add(part.name, None if part.offset is None else base + part.offset, part.size)
        graft(child, part, base)


class reading:
    """A context in which whatever breaks becomes the fault of ``tree``; offsets count from ``base`` of the file."""

    def __init__(self, tree: Tree, base: int = 0) -> None:
        self._tree, self._base = tree, base

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        fault = fault_of(error) if isinstance(error, Exception) else None
        if fault is None:
            return False
        what, offset = fault
        self._tree.fault = Fault(what, self._tree.offset if offset is None else self._base + offset)
        return True


def plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes as hex, others as text where they have to be."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and value not in (float("inf"), float("-inf")) else str(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)


# --- as text ----------------------------------------------------------------------------------------------------------


def render(node: Node, width: int = 0) -> str:
    """The tree as text: offset and size in columns, then the parts, each with what it says.

    What is longer than ``width`` characters is wrapped, so that the tree stays one; 0: nothing is.
    """
    rows: list[tuple[str, str, str, str]] = [("offset", "bytes", "", "")]
    _lines(node, "", "", rows)
    wide = [max(len(r[i]) for r in rows) for i in (0, 1)]
    room = max(_LEAST_ROOM, width - sum(wide) - 4) if width else 0
    lines = []
    for at, size, text, below in rows:
        parts = [text]
        if 0 < room < len(text):
            parts = textwrap.wrap(text, room, subsequent_indent=below, break_on_hyphens=False)
        lines += [f"{at:>{wide[0]}}  {size:>{wide[1]}}  {parts[0]}"]
        lines += [" " * (sum(wide) + 4) + part for part in parts[1:]]
    return "\n".join(line.rstrip() for line in lines)


def _lines(node: Node, first: str, rest: str, rows: list[tuple[str, str, str, str]]) -> None:
    facts = " · ".join(f"{k} {_text(v)}" if k else _text(v) for k, v in node.facts.items())
    told = f"{first}{node.name}" + (f"  {facts}" if facts else "")
    tails: list[str] = []
    if node.fault is not None:
        tails.append(f"✗ {node.fault}")
    if node.more is None:
        tails.append("… more")
    elif node.more:
        tails.append(f"… {node.more:,} more not shown")
    below = rest + ("│  " if node.children or tails else "   ")
    rows.append((_number(node.offset), _number(node.size), told, below))
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1 and not tails
        _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), rows)
    for i, tail in enumerate(tails):
        end = i == len(tails) - 1
        rows.append(("", "", rest + ("└─ " if end else "├─ ") + tail, rest + ("     " if end else "│    ")))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
    elif isinstance(value, list) and value and all(isinstance(v, list) and len(v) == 2 for v in value):
        text = ", ".join(f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in value)  # runs of rows
    else:
        text = json.dumps(plain(value), ensure_ascii=False)
    return shortened(text, _MOST_TEXT)


# --- bytes ------------------------------------------------------------------------------------------------------------


def hex_lines(data: bytes, offset: int) -> list[str]:
    """Bytes that stand at ``offset`` of a file, 16 a line: offset, hexadecimal, and as ASCII."""
    wide = max(8, len(f"{offset + len(data):x}"))
    out = []
    for at in range(0, len(data), 16):
        line = data[at : at + 16]
        told = f"{line[:8].hex(' '):<23}  {line[8:].hex(' '):<23}"
        out.append(f"{offset + at:0{wide}x}  {told}  |{''.join(chr(b) if 32 <= b < 127 else '.' for b in line)}|")
    return out
