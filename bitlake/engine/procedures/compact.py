"""``CALL sys.compact`` and ``sys.rescale``: compaction, sort compaction, and a new number of buckets.

``sys.compact`` takes Paimon's parameters.  It compacts the buckets of a primary-key table, or small files and deleted
rows of an append table, or sorts all rows (on Spark).  The session's runner does the work, bucket by bucket and group
by group; options of the call hold for it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bitlake import _clock
from bitlake.engine.procedures.procedure import OPTIONS, PROCEDURES, TABLE, Arguments, Parameter, procedure
from bitlake.errors import InvalidRequest
from bitlake.expressions.sql_text import quote, quoted
from bitlake.file_store_table import FileStoreTable
from bitlake.mergetree import dml
from bitlake.mergetree.rescale import rescale, rescale_partitions
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.state import TableState
from bitlake.types.datatypes import is_scalar
from bitlake.write.append_compaction import compact_append
from bitlake.write.append_dml import retrying


@procedure(
    TABLE,
    Parameter("partitions", False, "partitions, as 'a=1,b=2;a=3': commas are AND, semicolons OR"),
    Parameter("compact_strategy", False, "'full' (the default): everything; 'minor': what is due"),
    Parameter("order_strategy", False, "'order', 'zorder', 'hilbert' or 'none'"),
    Parameter("order_by", False, "columns to sort by, between commas"),
    Parameter("where", False, "a condition on partition columns, instead of partitions"),
    OPTIONS,
    Parameter("partition_idle_time", False, "only partitions without a new file for this long, as '1 h'"),
    Parameter("buckets", False, "only these fixed buckets, as '0,2-4'"),
)
def _compact(a: Arguments) -> None:
    """Compact a table's buckets or its small files, or sort its rows."""
    compact(a, a.table())


def compact(a: Arguments, table: FileStoreTable) -> None:
    """Run the procedure on a table with the other arguments."""
    session = a.session
    given = {p.name: (a.text(p.name) or "").strip() or None for p in PROCEDURES["compact"].parameters}
    full = _word("compact_strategy", given["compact_strategy"] or "full", ("full", "minor")) == "full"
    strategy = _word("order_strategy", given["order_strategy"] or "none", ("none", *STRATEGIES))
    where, idle, buckets = (
        given["where"],
        given["partition_idle_time"] and a.duration("partition_idle_time"),
        given["buckets"],
    )
    if given["partitions"]:
        if where:
            raise InvalidRequest("sys.compact takes either 'partitions' or 'where', not both")
        where = partition_condition(given["partitions"])
    if (strategy == "none") != (not given["order_by"]):
        raise InvalidRequest("sys.compact: 'order_by' goes with the 'order_strategy' order, zorder or hilbert")
    if strategy != "none" and (idle or buckets):
        raise InvalidRequest("sys.compact: 'partition_idle_time' and 'buckets' do not go with an 'order_strategy'")
    table = _Overridden(table, a.options())

    def step(state: TableState) -> None:
        table.check_writable(state, keyed=True)
        entries = table.partition_files(state, where)
        if strategy != "none":
            columns = order_columns(table.name, state.schema, given["order_by"] or "")
            if state.schema.primary_keys or state.schema.num_buckets != -1:
                raise InvalidRequest(
                    f"table '{table.name}' keeps its rows by bucket; only append tables without buckets can be sorted"
                )
            session.sort_compact(table, state, entries, where, strategy, columns)
            return
        if idle:
            entries = _idle(entries, _clock.local_ms() - round(idle.total_seconds() * 1000))
        if buckets:
            wanted = _numbers(table.name, state.schema, buckets)
            entries = [e for e in entries if e.bucket in wanted]
        if state.schema.primary_keys:
            dml.compact(table, state, entries, full, session.place_postponed)
        else:
            user = table.publisher(state).user
            compact_append(state, entries, table.state, session.runner(), user, full)

    def expiring(state: TableState) -> None:
        step(state)
        table.expire_due(state)

    retrying(table.state, expiring)


class _Overridden(FileStoreTable):
    """A table with some options changed, for one call; they are not stored."""

    def __init__(self, table: FileStoreTable, options: Mapping[str, str]) -> None:
        self.__dict__.update(table.__dict__)
        self._extra = options
        if opt.BUCKET.name in self._extra:
            raise InvalidRequest("a compaction cannot change 'bucket'; INSERT OVERWRITE the table with its own rows")
        stored = super().state().schema.options
        opt.check_override(stored, {**stored, **self._extra})

    def state(self) -> TableState:
        """The table now, with the options changed."""
        latest = super().state()
        return replace(latest, schema=latest.schema.with_options(self._extra))


def _word(name: str, text: str, allowed: Sequence[str]) -> str:
    if text.lower() not in allowed:
        raise InvalidRequest(f"sys.compact: '{name}' is one of {', '.join(allowed)}, not '{text}'")
    return text.lower()


def partition_condition(text: str) -> str:
    """``a=1,b=2;a=3`` as a condition: commas are AND, semicolons OR."""
    either = []
    for partition in filter(None, (p.strip() for p in text.split(";"))):
        both = []
        for pair in partition.split(","):
            name, sign, value = pair.partition("=")
            if not sign:
                raise InvalidRequest(f"'partitions' are name=value, and '{pair.strip()}' is not")
            value = quote(value.strip().strip("'\""))
            both.append(f"{quoted(name.strip())} = {value}")
        either.append(f"({' AND '.join(both)})")
    return " OR ".join(either)


def _idle(entries: Sequence[ManifestEntry], before: int) -> list[ManifestEntry]:
    """The files of partitions that got none since a time."""
    last: dict[bytes, int] = {}
    for e in entries:
        last[e.partition] = max(last.get(e.partition, 0), e.file.creation_time or 0)
    return [e for e in entries if last[e.partition] <= before]


def _numbers(table: str, schema: TableSchema, text: str) -> set[int]:
    """``0,2-4`` as bucket numbers."""
    total = schema.num_buckets
    if total <= 0:
        raise InvalidRequest(f"table '{table}' has no fixed buckets to choose from")
    out: set[int] = set()
    for part in text.split(","):
        low, sign, high = part.strip().partition("-")
        try:
            first = int(low)
            last = int(high) if sign else first
        except ValueError as e:
            raise InvalidRequest(f"sys.compact: 'buckets' are numbers and ranges such as 0,2-4, not '{text}'") from e
        if not 0 <= first <= last < total:
            raise InvalidRequest(f"sys.compact: table '{table}' has buckets 0 to {total - 1}, not '{part.strip()}'")
        out.update(range(first, last + 1))
    return out


STRATEGIES = ("order", "zorder", "hilbert")


def order_columns(table: str, schema: TableSchema, text: str) -> list[str]:
    """The columns of ``order_by``; raises :class:`InvalidRequest` for those that rows cannot be sorted by."""
    out: list[str] = []
    for part in text.split(","):
        field = schema.field(part.strip())
        if field.name in schema.partition_keys:
            raise InvalidRequest(f"table '{table}': sorting by partition column '{field.name}' would change nothing")
        if not is_scalar(field.type):
            raise InvalidRequest(f"table '{table}': rows cannot be sorted by '{field.name}', which is {field.type}")
        if field.name in out:
            raise InvalidRequest(f"table '{table}': '{field.name}' is named twice in order_by")
        out.append(field.name)
    return out


@procedure(
    TABLE,
    Parameter("bucket_num", False, "how many buckets; without it, as many as the option says by now"),
    Parameter("partitions", False, "only these partitions, as 'a=1,b=2;a=3,b=4'; the option stays"),
    Parameter("where", False, "a condition on partition columns, instead of partitions"),
)
def _rescale(a: Arguments) -> None:
    """Spread a table's rows over another number of fixed buckets."""
    table, wanted, where = a.table(), a.integer("bucket_num"), a.text("where")
    if a.get("partitions"):
        if where:
            raise InvalidRequest("sys.rescale takes either 'partitions' or 'where', not both")
        where = partition_condition(a.needed("partitions"))

    rewrite = a.session.rewriter(table, where)
    number = table.schema.num_buckets if wanted is None else wanted
    if where is None or rewrite is None:
        rescale(table, number, rewrite)
    else:
        rescale_partitions(table, number, where, rewrite)
