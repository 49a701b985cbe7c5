"""Options of the data source: names, aliases, valid combinations, and the table that they name.

Names ignore case, and separators are as in the lists below.  Paimon's names are taken as well, for what they mean in
Paimon's own Spark source.  An option that is unknown, or of the other direction, is refused by its name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake.catalog import connect_catalog, open_store_for
from bitlake.catalog.catalog import DEFAULT_DATABASE, Catalog, Identifier, parse_object_name
from bitlake.catalog.filesystem import check_unused, create_first_schema, delete_table
from bitlake.errors import InvalidRequest, NotFound
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store, local_cache
from bitlake.io.base import scheme_of
from bitlake.io.object_store_options import KINDS, options_for
from bitlake.metadata import options as opt
from bitlake.metadata.paths import TablePaths, split_paths
from bitlake.runtime import DEFAULT_CACHE_BYTES, Caches, process_caches
from bitlake.scan.sort_order import OrderItem
from bitlake.schema.create import ColumnSpec, new_schema
from bitlake.schema.evolution import PREFIX
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import has_schema
from bitlake.sql.parser import parse_table_name
from bitlake.system_tables.tables import SystemTable
from bitlake.table import open_table
from bitlake.types.time_zone import zone

PLACE = tuple(
    "path warehouse database table branch catalog uri catalog-key timezone external-paths cache-bytes".split()
)
"""Which table, where its files may be, in which zone times without one are, and how much is cached."""
_OWN_CATALOG = ("filesystem", "paimon", "bitlake")
"""What ``catalog`` may be of a table that its folder names: the kind, or the lake's own names in SQL."""
MOMENT = ("snapshot", "tag", "timestamp", "version")
CHANGES = ("incremental-between", "incremental-between-timestamp", "incremental-mode", "row-kind")
BATCH = (*MOMENT, *CHANGES, "columns", "where", "topn", "limit")
STREAM = tuple(
    (
        "start snapshot timestamp row-kind columns where consumer-id consumer.ignore-progress maxfilespertrigger "
        "maxbytespertrigger maxrowspertrigger minrowspertrigger maxtriggerdelayms"
    ).split()
)
ONLY_STREAM = tuple(n for n in STREAM if n not in BATCH)
MERGING = (PREFIX, f"{PREFIX}.type-widening", f"{PREFIX}.explicit-cast")
"""Whether rows may bring columns that the table lacks, or other types."""
WRITE = ("partition-overwrite-mode", "partition", "row-kind-column", *MERGING)
STREAM_WRITE = ("checkpointlocation", "commit-user", "row-kind-column", "queryname", "outputmode", *MERGING)
_CATALOG = ("jdbc.", "token", "header.")
"""The prefixes of options for a catalog."""
_OPEN = (
    *_CATALOG,
    *"s3. s3a. fs. gs. google.cloud. azure_ aws_ google_ azure. oss. hdfs. dfs. hadoop. spark.hadoop.".split(),
    "local-cache.",
)
"""The prefixes of options for reaching a store, or a catalog's database."""

_ALIASES = {
    "scan.snapshot-id": "snapshot",
    "scan.tag-name": "tag",
    "scan.timestamp-millis": "timestamp",
    "scan.timestamp": "timestamp",
    "scan.version": "version",
    "scan.mode": "start",
    "incremental-between-scan-mode": "incremental-mode",
    "read.changelog": "row-kind",
    "read.stream.maxfilespertrigger": "maxfilespertrigger",
    "read.stream.maxbytespertrigger": "maxbytespertrigger",
    "read.stream.maxrowspertrigger": "maxrowspertrigger",
    "read.stream.minrowspertrigger": "minrowspertrigger",
    "read.stream.maxtriggerdelayms": "maxtriggerdelayms",
    "partitionoverwritemode": "partition-overwrite-mode",
}
IN_SPARKS_CATALOG = (
    "Spark's own catalog cannot hold tables of bitlake: it passes a Python data source neither their names nor their "
    'folders. Create the table with lake.sql("CREATE TABLE …"), or with df.write.format("bitlake").mode("append")'
    ".save(folder); in spark.sql, read it with CREATE TEMPORARY VIEW v USING bitlake OPTIONS (path 'folder')"
)
WHICH_TABLE = (
    "which table? Load its folder, or give the options 'warehouse' and 'table'. If CREATE TABLE … USING bitlake of "
    f"spark.sql made the table, or saveAsTable(), drop it: {IN_SPARKS_CATALOG}"
)
_USES = {"batch read": BATCH, "stream read": STREAM, "batch write": WRITE, "stream write": STREAM_WRITE}
READ = "read"
"""A use that may be either read: Spark asks for a schema before it says which."""


_PREFIXES = {"s3": "s3.", "gcs": "gs.", "azure": "azure_"}
"""The prefix that makes an option of a kind of store from obstore's bare name."""


def storage_spelling(uri: str, options: Mapping[str, str], session: Mapping[str, str]) -> dict[str, str]:
    """Return storage options, completed from a session's settings, with prefixes unlike those of the source's own.

    The source runs in processes of its own, which have no session.
    """
    scheme = scheme_of(uri)
    prefix = _PREFIXES.get(KINDS.get(scheme, ""), "hdfs.")
    own = {k if k.lower().startswith(_OPEN) else prefix + k: v for k, v in options.items()}
    cached = {} if scheme == "file" else local_cache.session_options(session)
    if scheme not in ("hdfs", "webhdfs", "swebhdfs"):
        return {**cached, **options_for(uri, session, options), **own}
    from bitlake.io import webhdfs  # with urllib3

    # Options that name WebHDFS choose it: a session's settings might be of another cluster.
    return {**cached, **({} if webhdfs.names_webhdfs(options, {}) else webhdfs.session_options(session)), **own}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one use of the source, by their own names."""

    use: str
    values: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str], use: str) -> SourceOptions:
        """Check names; ``use`` is ``batch read``, ``stream read``, ``batch write`` or ``stream write``.

        A write takes a table's options, too, for a table that it creates.  Raises :class:`InvalidRequest` naming an
        option that is unknown, twice there, or of no use here.
        """
        if "owner" in given:  # a property of every table in Spark's catalog
            raise InvalidRequest(IN_SPARKS_CATALOG)
        allowed = (*PLACE, *((*BATCH, *ONLY_STREAM) if use == READ else _USES[use]))
        values: dict[str, str] = {}
        for name, value in given.items():
            key = name.lower().strip()
            own = _ALIASES.get(key, key)
            of_table = use.endswith("write") and opt.is_known(own)
            if own not in allowed and not own.startswith(_OPEN) and not of_table:
                raise InvalidRequest(_unknown(name, own, use, allowed))
            if own in values and values[own] != value:
                raise InvalidRequest(f"option '{name}' is '{value}', but another spelling of it is '{values[own]}'")
            values[own] = str(value)
        return cls(use, values)

    def get(self, name: str) -> str | None:
        """An option's text without blanks around it; None if it is not given or empty."""
        return (self.values.get(name) or "").strip() or None

    def number(self, name: str, least: int = 0) -> int | None:
        """An option that is a whole number."""
        text = self.get(name)
        if text is None:
            return None
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise InvalidRequest(f"option '{name}' takes a whole number from {least} on, and not '{text}'")
        return int(text)

    def flag(self, name: str) -> bool:
        """An option that is true or false."""
        text = (self.get(name) or "false").lower()
        if text not in ("true", "false"):
            raise InvalidRequest(f"option '{name}' is 'true' or 'false', and not '{text}'")
        return text == "true"

    def names(self, name: str) -> list[str] | None:
        """An option that lists columns, between commas; in backticks they may hold any character."""
        text = self.get(name)
        return None if text is None else [n for n in split_list(name, text) if n]

    def only_one(self, names: Iterable[str]) -> None:
        """Raise :class:`InvalidRequest` if more than one of these options is given."""
        given = [n for n in names if self.get(n) is not None]
        if len(given) > 1:
            raise InvalidRequest(f"give one of the options '{given[0]}' and '{given[1]}', not both")

    def order(self) -> tuple[list[OrderItem], int] | None:
        """``topn``: ``amount desc nulls last, id: 10`` — columns with their order, a colon, how many rows."""
        text = self.get("topn")
        if text is None:
            return None
        columns, colon, count = text.rpartition(":")
        if not colon or not count.strip().isdigit():
            raise InvalidRequest(
                f"option 'topn' is an order and a number of rows, such as 'amount desc: 10', not '{text}'"
            )
        items: list[OrderItem] = []
        for part in split_list("topn", columns):
            name, _, rest = part.partition(" ")
            words = rest.lower().split()
            direction = words.pop(0) if words and words[0] in ("asc", "desc") else "asc"
            if words and (len(words) != 2 or words[0] != "nulls" or words[1] not in ("first", "last")):
                raise InvalidRequest(
                    f"option 'topn': '{part}' is not a column with asc or desc and NULLS FIRST or LAST"
                )
            items.append((name, direction, words[1]) if words else (name, direction))
        return items, int(count)

    # --- the table ---------------------------------------------------------------------------------------------------

    @property
    def timezone(self) -> str:
        """The zone of times without one; raises :class:`InvalidRequest` for one that is not known."""
        name = self.get("timezone") or "UTC"
        zone(name)
        return name

    @property
    def external_paths(self) -> list[str]:
        """The folders outside of the table's own that may hold files of it."""
        return split_paths(self.get("external-paths"))

    def table(self) -> FileStoreTable:
        """The table that the options name; raises :class:`NotFound` if it is not there."""
        if self.get("warehouse") is not None:
            return self._of_warehouse()
        path = self.get("path")
        unused = ["uri", "catalog-key"] if self.get("catalog") in (None, *_OWN_CATALOG) else ["catalog"]
        unused += ["database", "table"] if path is None else []
        for name in unused:
            if self.get(name) is not None:
                raise InvalidRequest(f"option '{name}' goes with 'warehouse', the folder of the lake")
        if path is None:
            raise InvalidRequest(WHICH_TABLE)
        return self._of_path(path)

    @property
    def names_branch(self) -> bool:
        """Whether the options name a branch or a system table, which no write creates."""
        return self.get("branch") is not None or "$" in f"{self.get('path')}{self.get('table')}".rpartition("/")[2]

    @property
    def table_options(self) -> dict[str, str]:
        """The options of a table that a write creates."""
        own = (*PLACE, *_USES.get(self.use, ()))
        return {k: v for k, v in self.values.items() if k not in own and not k.startswith(_OPEN)}

    def create_table(self, columns: Sequence[ColumnSpec]) -> None:
        """Create the table that the options name.

        Raises :class:`AlreadyExists` for a folder that holds something else.
        """
        if self.get("warehouse") is not None:
            catalog, name = self._in_warehouse()
            catalog.create_table(name, columns, options=self.table_options, if_not_exists=True)
            return
        folder = str(self.get("path")).rstrip("/")
        store = open_store_for(folder, self._storage(), None, self.external_paths)
        schema = new_schema(folder, columns, (), self.table_options, None)
        check_unused(store, folder, folder)
        create_first_schema(store, folder, schema)

    def drop_table(self) -> None:
        """Drop the table that the options name, unless somebody has written to it."""
        table = self.table()
        if table.state().snapshot_id is not None:
            return
        if self.get("warehouse") is not None:
            catalog, name = self._in_warehouse()
            catalog.drop_table(name, if_exists=True)
        else:
            delete_table(table.store, table.path)

    def _of_path(self, path: str) -> FileStoreTable:
        folder = path.rstrip("/")
        parent, _, last = folder.rpartition("/")
        store = open_store_for(folder, self._storage(), None, self.external_paths)
        store.caches = self._caches(store)
        relation = parse_object_name(last)
        name = relation.table
        database = parent.rpartition("/")[2]
        shown = f"{database.removesuffix('.db')}.{name}" if database.endswith(".db") else name
        for option, there in (("database", database.removesuffix(".db")), ("table", name)):
            # Paimon's documentation has both; they may say nothing else than the path does.
            if (self.get(option) or there).strip("`").lower() != there.lower():
                raise InvalidRequest(f"option '{option}' = '{self.get(option)}', and the path is of '{there}'")
        branch = self._branch(relation.branch)
        if not has_schema(TableFiles(store, TablePaths(f"{parent}/{name}"))):
            raise NotFound(f"no table at {parent}/{name}: the folder has no schema; is it the table's own folder?")
        table = FileStoreTable(
            shown, f"{parent}/{name}", store, timezone=self.timezone, branch=branch, external_roots=self.external_paths
        )
        return table if relation.system is None else SystemTable(table, relation.system)

    def _of_warehouse(self) -> FileStoreTable:
        catalog, name = self._in_warehouse()
        return open_table(catalog, catalog.find(name), timezone=self.timezone)

    def _in_warehouse(self) -> tuple[Catalog, Identifier]:
        self.only_one(("path", "table"))
        warehouse, name = str(self.get("warehouse")), self.get("table") or self.get("path")
        if name is None:
            raise InvalidRequest("option 'warehouse' goes with 'table' (or the table's name in load())")
        own = {k: v for k, v in self.values.items() if k == "catalog-key" or k.startswith(_CATALOG)}
        kind = self.get("catalog") or "filesystem"
        catalog = connect_catalog(kind, warehouse, self.get("uri"), own, self._storage(), None, self.external_paths)
        catalog.runtime = replace(catalog.runtime, caches=self._caches(catalog.store))
        given, table = _split_name(name)
        if given is not None and self.get("database") is not None:
            raise InvalidRequest(f"table '{name}' and option 'database' both name a database")
        branch = self._branch(None)
        if branch is not None:
            if "$" in table:
                raise InvalidRequest(f"option 'branch' = '{branch}' and table '{table}' both name more than a table")
            table = f"{table}$branch_{branch}"
        database = given or self.get("database") or DEFAULT_DATABASE
        return catalog, Identifier(database, table)

    def _caches(self, store: Store) -> Caches:
        """The caches of this process, since the next query opens a store of its own."""
        size = self.number("cache-bytes")
        return process_caches(store.identity, DEFAULT_CACHE_BYTES if size is None else size)

    def _branch(self, named: str | None) -> str | None:
        given = self.get("branch")
        if given is not None and named is not None and given != named:
            raise InvalidRequest(f"option 'branch' = '{given}', and the path is of branch '{named}'")
        found = given or named
        return None if found == "main" else found

    def _storage(self) -> dict[str, str]:
        return {k: v for k, v in self.values.items() if k.startswith(_OPEN) and not k.startswith(_CATALOG)}


def _split_name(name: str) -> tuple[str | None, str]:
    """The database, if any, and the table of a name."""
    if "`" in name:
        parsed = parse_table_name(name)
        if parsed.catalog is not None:
            raise InvalidRequest(f"'{name}' is a table of another catalog, '{parsed.catalog}'")
        return parsed.database, parsed.table
    parts = name.split(".")
    if len(parts) > 2:
        raise InvalidRequest(f"invalid table name '{name}'; expected 'table' or 'database.table'")
    return (parts[0] if len(parts) == 2 else None), parts[-1]


def split_list(option: str, text: str) -> list[str]:
    """Items between commas; a comma in backticks is part of a name, and the backticks go."""
    out, current, quoted = [], "", False
    for c in text:
        if c == "`":
            quoted = not quoted
        elif c == "," and not quoted:
            out.append(current.strip())
            current = ""
        else:
            current += c
    if quoted:
        raise InvalidRequest(f"option '{option}': a backtick is open in '{text}'")
    return [*out, current.strip()]


def _unknown(name: str, own: str, use: str, allowed: Sequence[str]) -> str:
    elsewhere = [u for u, names in _USES.items() if own in names]
    if elsewhere:
        return f"option '{name}' is of a {' and a '.join(elsewhere)}; a {use} has no use for it"
    near = difflib.get_close_matches(own, allowed, 1, 0.7)
    hint = f"; did you mean '{near[0]}'?" if near else f"; a {use} takes {', '.join(sorted(set(allowed)))}"
    return f"option '{name}' is not known{hint}"


def parse_partition(text: str) -> dict[str, Any]:
    """Return the texts of option ``partition`` by column, of ``day=2024-01-01, hour=5``."""
    out: dict[str, Any] = {}
    for part in split_list("partition", text):
        name, sign, value = part.partition("=")
        if not sign or not name.strip() or name.strip() in out:
            raise InvalidRequest(
                f"option 'partition' is column=value, between commas, each column once; '{part}' is not"
            )
        out[name.strip()] = value.strip().strip("'\"")
    return out
