"""A serial model of a table's history, and the operations that it judges: what they may leave when they are killed.

An operation is a list of steps, each of which is visible as a whole or not at all.  A lake may look as after any
interleaving of the steps of the operations that ran at once; of a killed one, any number of its first steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from builders import terms
from caches import forget

import bitlake
from bitlake.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound
from bitlake.snapshot.expiry import Retention

SCHEMA = pa.schema([("id", pa.int64())])
ALL = Retention(1, 1, 1 << 60, 1 << 30)
EVER = 1 << 60
Rows = frozenset[int]


class Refused(Exception):
    """The operation is not possible in this state."""


@dataclass(frozen=True)
class Line:
    """Main or a branch: snapshots and tags, by id and name."""

    snapshots: tuple[tuple[int, Rows], ...] = ()
    tags: tuple[tuple[str, tuple[int, Rows]], ...] = ()

    @property
    def rows(self) -> Rows:
        return self.snapshots[-1][1] if self.snapshots else frozenset()

    def tagged(self, **tags: tuple[int, Rows] | None) -> Line:
        """With tags set, or removed by None."""
        merged = {**dict(self.tags), **tags}
        return replace(self, tags=tuple(sorted((n, t) for n, t in merged.items() if t is not None)))

    def tag(self, name: str) -> tuple[int, Rows]:
        """A tag's snapshot; raises :class:`Refused`."""
        if name not in dict(self.tags):
            raise Refused
        return dict(self.tags)[name]


@dataclass(frozen=True)
class Model:
    """One table."""

    main: Line = Line()
    columns: tuple[str, ...] = ("id",)
    branches: tuple[tuple[str, Line], ...] = ()

    def branched(self, **lines: Line | None) -> Model:
        """With branches set, or removed by None."""
        merged = {**dict(self.branches), **lines}
        return replace(self, branches=tuple(sorted((n, b) for n, b in merged.items() if b is not None)))

    def branch(self, name: str) -> Line:
        """A branch; raises :class:`Refused`."""
        if name not in dict(self.branches):
            raise Refused
        return dict(self.branches)[name]


Lake = tuple[tuple[str, Model], ...]
Step = Callable[[Lake], Lake]


def on_table(change: Callable[[Model], Model], name: str = "t") -> Step:
    """A step of one table."""

    def step(lake: Lake) -> Lake:
        tables = dict(lake)
        if name not in tables:
            raise Refused
        return tuple(sorted({**tables, name: change(tables[name])}.items()))

    return step


def appended(*ids: int) -> Callable[[Model], Model]:
    def change(m: Model) -> Model:
        last = m.main.snapshots[-1][0] if m.main.snapshots else 0
        return replace(m, main=replace(m.main, snapshots=(*m.main.snapshots, (last + 1, m.main.rows | set(ids)))))

    return change


def rolled_back(number: int) -> Callable[[Model], Model]:
    def change(m: Model) -> Model:
        if number not in dict(m.main.snapshots) or any(t[0] > number for _, t in m.main.tags):
            raise Refused
        return replace(m, main=replace(m.main, snapshots=tuple(s for s in m.main.snapshots if s[0] <= number)))

    return change


def forwarded(name: str) -> Callable[[Model], Model]:
    """The switch to a branch: its rows, columns and snapshots; main's later tags go."""

    def change(m: Model) -> Model:
        line = m.branch(name)
        first = line.snapshots[0][0]
        kept = tuple(s for s in m.main.snapshots if s[0] < first)
        tags = {n: t for n, t in m.main.tags if t[0] < first or n in dict(line.tags)}
        # Main's later schemas go, as in Paimon's fastForward; no operation here alters a branch.
        return replace(m, main=Line((*kept, *line.snapshots), ()).tagged(**tags), columns=("id",))

    return change


def tagged_as(name: str) -> Callable[[Model], Model]:
    """The second step of a fast-forward: main gets the branch's tags."""

    def change(m: Model) -> Model:
        return replace(m, main=m.main.tagged(**dict(m.branch(name).tags)))

    return change


def expired(m: Model) -> Model:
    return replace(m, main=replace(m.main, snapshots=m.main.snapshots[-1:]))


def tagged(name: str, source: str | None, *, drop: bool = False) -> Callable[[Model], Model]:
    """A tag of the latest snapshot, or of another tag's, which may go."""

    def change(m: Model) -> Model:
        if source is None and not m.main.snapshots:
            raise Refused
        held = m.main.snapshots[-1] if source is None else m.main.tag(source)
        if drop and name in dict(m.main.tags):
            raise Refused
        tags = {name: held, **({str(source): None} if drop else {})}
        return replace(m, main=m.main.tagged(**tags))

    return change


def untagged(name: str) -> Callable[[Model], Model]:
    def change(m: Model) -> Model:
        m.main.tag(name)
        return replace(m, main=m.main.tagged(**{name: None}))

    return change


def branched(name: str, tag: str) -> Callable[[Model], Model]:
    def change(m: Model) -> Model:
        if name in dict(m.branches):
            raise Refused
        held = m.main.tag(tag)
        return m.branched(**{name: Line((held,)).tagged(**{tag: held})})

    return change


def unbranched(name: str, new: str | None = None) -> Callable[[Model], Model]:
    """A branch gone, or renamed."""

    def change(m: Model) -> Model:
        line = m.branch(name)
        if new is not None and new in dict(m.branches):
            raise Refused
        return m.branched(**{name: None, **({} if new is None else {new: line})})

    return change


def dropped(lake: Lake) -> Lake:
    """DROP TABLE IF EXISTS."""
    return tuple(item for item in lake if item[0] != "t")


def created(lake: Lake) -> Lake:
    if "t" in dict(lake):
        raise Refused
    return tuple(sorted((*lake, ("t", Model()))))


def renamed(lake: Lake) -> Lake:
    if "t" not in dict(lake) or "u" in dict(lake):
        raise Refused
    return tuple(sorted(("u" if name == "t" else name, table) for name, table in lake))


def with_column(m: Model) -> Model:
    if "more" in m.columns:
        raise Refused
    return replace(m, columns=(*m.columns, "more"))


@dataclass(frozen=True)
class Operation:
    """What bitlake does, and its steps in the model."""

    name: str
    run: Callable[[bitlake.Lake], object]
    steps: tuple[Step, ...]
    partial: bool = field(default=False)
    """Whether tags may be in between after a death, until it is repeated."""
    several: bool = field(default=False)
    """Whether these are several calls: a refusal of the last one does not take back the others."""


def _recreate(lake: bitlake.Lake) -> None:
    with contextlib.suppress(NotFound):
        lake.drop_table("t")
    lake.create_table("t", SCHEMA)


def _append(number: int) -> Callable[[bitlake.Lake], object]:
    return lambda lake: lake.table("t").append(pa.table([[number]], schema=SCHEMA))


def _rename(lake: bitlake.Lake) -> None:
    lake.rename_table("t", "u")


WRITER = Operation("append", _append(50), (on_table(appended(50)),))
EXPIRY = Operation(
    "expire", lambda lake: lake.table("t").maintenance.expire_snapshots(**terms(ALL)), (on_table(expired),)
)
OPERATIONS = (
    WRITER,
    EXPIRY,
    Operation("rollback", lambda lake: lake.table("t").history.rollback(4), (on_table(rolled_back(4)),)),
    Operation(
        "fast-forward",
        lambda lake: lake.table("t").history.fast_forward("dev"),
        (on_table(forwarded("dev")), on_table(tagged_as("dev"))),
        partial=True,
    ),
    Operation("create tag", lambda lake: lake.table("t").history.create_tag("new"), (on_table(tagged("new", None)),)),
    Operation("replace tag", lambda lake: lake.table("t").history.replace_tag("a"), (on_table(tagged("a", None)),)),
    Operation(
        "rename tag",
        lambda lake: lake.table("t").history.rename_tag("a", "c"),
        (on_table(tagged("c", "a")), on_table(untagged("a"))),
    ),
    Operation("delete tag", lambda lake: lake.table("t").history.delete_tag("b"), (on_table(untagged("b")),)),
    Operation(
        "create branch", lambda lake: lake.table("t").history.create_branch("x", "a"), (on_table(branched("x", "a")),)
    ),
    Operation(
        "rename branch",
        lambda lake: lake.table("t").history.rename_branch("dev", "y"),
        (on_table(unbranched("dev", "y")),),
    ),
    Operation(
        "delete branch", lambda lake: lake.table("t").history.delete_branch("dev"), (on_table(unbranched("dev")),)
    ),
    Operation("recreate", _recreate, (dropped, created), several=True),
    Operation("rename table", _rename, (renamed,)),
    Operation("alter", lambda lake: lake.table("t").add_column("more", "INT"), (on_table(with_column),)),
    Operation("remove orphans", lambda lake: lake.table("t").maintenance.remove_orphan_files(EVER), ()),
)
BY_NAME = {o.name: o for o in OPERATIONS}


def prepared(root: Path) -> Lake:
    """Six snapshots, tags ``a`` and ``b`` of the second and third, branch ``dev`` of ``a`` with two more and a tag."""
    # Who dies does not wait for the store to come back.
    quick = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}
    table = bitlake.connect(str(root)).create_table("t", SCHEMA, options=quick)
    model = Model()
    for i in range(1, 7):
        table.append(pa.table([[i]], schema=SCHEMA))
        model = appended(i)(model)
        if i in (2, 3):
            name = "ab"[i - 2]
            table.history.create_tag(name)
            model = tagged(name, None)(model)
    table.history.create_branch("dev", "a")
    model = branched("dev", "a")(model)
    dev = bitlake.connect(str(root)).table("t$branch_dev")
    line = Model(model.branch("dev"))
    for i in (20, 21):
        dev.append(pa.table([[i]], schema=SCHEMA))
        line = appended(i)(line)
    dev.history.create_tag("d")
    line = tagged("d", None)(line)
    return (("t", model.branched(dev=line.main)),)


def outcomes(start: Lake, done: Sequence[tuple[Operation, bool | None]]) -> Iterator[Lake]:
    """The lakes that operations may leave; each took place (True), was refused (False), or died (None)."""

    def go(lake: Lake, left: tuple[tuple[Step, ...], ...]) -> Iterator[Lake]:
        if all(not steps or known is None for steps, (_, known) in zip(left, done, strict=True)):
            yield lake
        for i, steps in enumerate(left):
            if steps:
                try:
                    after = steps[0](lake)
                except Refused:
                    continue
                yield from go(after, (*left[:i], steps[1:], *left[i + 1 :]))

    return go(start, tuple(() if known is False else o.steps for o, known in done))


def look(root: Path) -> dict[str, tuple[Rows, tuple[str, ...], dict[str, Rows], dict[str, Rows]]]:
    """What a lake holds: of each table the rows, the columns, and the rows of each tag and branch."""
    forget()
    lake = bitlake.connect(str(root))
    found = {}
    for name in lake.tables():
        table = lake.table(name)
        tags = {t: _rows(table.scan(["id"], tag=t).to_arrow()) for t in table.history.tags()}
        branches = {
            b: _rows(lake.table(f"{name}$branch_{b}").scan(["id"]).to_arrow()) for b in table.history.branches()
        }
        rows = _rows(table.scan(["id"]).to_arrow())
        found[name] = rows, tuple(table.schema.field_names), tags, branches
    return found


def seen(lake: Lake) -> dict[str, tuple[Rows, tuple[str, ...], dict[str, Rows], dict[str, Rows]]]:
    """What :func:`look` finds in a lake of the model."""
    return {
        name: (
            m.main.rows,
            m.columns,
            {t: held[1] for t, held in m.main.tags},
            {b: line.rows for b, line in m.branches},
        )
        for name, m in lake
    }


def _rows(table: pa.Table) -> Rows:
    ids = table.column("id").to_pylist()
    assert len(ids) == len(set(ids)), f"rows are there twice: {sorted(ids)}"
    return frozenset(ids)


def judge(root: Path, start: Lake, done: Sequence[tuple[Operation, bool | None]], what: str) -> None:
    """Raise :class:`AssertionError` unless a lake is one of the outcomes."""
    found = look(root)
    possible = [seen(lake) for lake in outcomes(start, done)]
    if len(done) > 1 and any(o.name in ("create tag", "replace tag") for o, _ in done):
        # The latest snapshot is looked up before: the tag may hold one that was rolled back since.
        held = {rows for _, rows in dict(start)["t"].main.snapshots}
        held |= {entry[0] for lake in possible for entry in lake.values()}
        for lake in [found, *possible]:
            for entry in lake.values():
                for name in ("a", "new"):
                    assert entry[2].pop(name, frozenset({1, 2})) in held, f"{what}: {found}"
    if any(known is None and o.partial for o, known in done):
        tags = {t for lake in possible for table in lake.values() for t in table[2]}
        assert all(set(table[2]) <= tags for table in found.values()), f"{what}: {found}"
        found = {n: (t[0], t[1], {}, t[3]) for n, t in found.items()}
        possible = [{n: (t[0], t[1], {}, t[3]) for n, t in lake.items()} for lake in possible]
    assert found in possible, f"{what}: found {found}\nand not one of {possible}"


def repeat(root: Path, operation: Operation, what: str, *, alone: bool = True) -> None:
    """Call a killed operation again: it completes, or refuses because it took place; then the lake takes new rows.

    ``alone``: no other operation ran beside it that could be a reason to refuse.
    """
    try:
        if operation is not WRITER:  # its rows would be there twice
            operation.run(bitlake.connect(str(root)))
    except (NotFound, AlreadyExists, InvalidRequest, CommitConflict):
        if alone and operation.name in ("fast-forward", "recreate", "append", "expire", "remove orphans"):
            raise
    before = look(root)
    lake = bitlake.connect(str(root))
    for name in before:
        lake.table(name).append(pa.table([[99 + len(before[name][0])]], schema=SCHEMA))
        lake.table(name).maintenance.expire_snapshots(**terms(ALL))
        lake.table(name).maintenance.remove_orphan_files(EVER)
    after = look(root)
    for name, (rows, columns, tags, branches) in before.items():
        assert after[name] == (rows | {99 + len(rows)}, columns, tags, branches), (
            f"{what}, and then an append: {after[name]}"
        )
