"""Which catalog a lake has: where the names of its databases and tables are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.errors import InvalidRequest
from bitlake.io import Store, open_store
from bitlake.io.base import scheme_of
from bitlake.metadata.locations import DeferredRoots, check_roots

KINDS = ("filesystem", "jdbc", "rest")
REST = "rest"
"""The kind whose warehouse is a name and no folder."""


def connect_catalog(
    kind: str,
    warehouse: str,
    uri: str | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    configured: Mapping[str, str] | None = None,
    external_paths: Sequence[str] = (),
) -> FileSystemCatalog:
    """The catalog of a kind over a warehouse, with the store of its files; see :func:`open_catalog` for the rest.

    ``storage_options`` and ``configured`` are as in :func:`bitlake.io.open_store`.  ``external_paths``: folders
    that may hold files of tables, besides the tables' own.
    """
    catalog = _connect(kind, warehouse, uri, options, storage_options, configured, external_paths)
    catalog.external_roots = check_roots(external_paths)
    return catalog


def _connect(
    kind: str,
    warehouse: str,
    uri: str | None,
    options: Mapping[str, str] | None,
    storage_options: Mapping[str, str] | None,
    configured: Mapping[str, str] | None,
    external_paths: Sequence[str],
) -> FileSystemCatalog:
    if kind == REST:
        if not uri:
            raise InvalidRequest("the rest catalog takes a uri: http://host:port")
        from bitlake.catalog.rest import RestCatalog
        from bitlake.catalog.rest_store import RestStore
        from bitlake.io.rest import RestClient, rest_options

        client = RestClient(rest_options(uri, warehouse, options or {}))
        return RestCatalog(client, RestStore(client, storage_options, configured))
    store = open_store_for(warehouse, storage_options, configured, external_paths)
    return open_catalog(kind, store, warehouse, uri, options)


def open_store_for(
    folder: str,
    options: Mapping[str, str] | None,
    configured: Mapping[str, str] | None,
    external_paths: Sequence[str],
) -> Store:
    """The store of a folder, which also reaches the external paths, wherever they are.

    Where these are not known yet, it reaches whatever store one will be in; options are for one of them, or wrong.
    """
    roots = check_roots(external_paths)
    home = scheme_of(folder), urlsplit(folder).netloc
    if options or home[0] != "file" or not isinstance(roots, DeferredRoots):
        places = [(scheme_of(r), urlsplit(r).netloc) for r in roots]
        if all(place == home or place[0] == home[0] == "file" for place in places):
            return open_store(folder, options, configured=configured)
    from bitlake.io.resolving import ResolvingStore

    return ResolvingStore(options, configured, folder)


def open_catalog(
    kind: str, store: Store, warehouse: str, uri: str | None = None, options: Mapping[str, str] | None = None
) -> FileSystemCatalog:
    """The catalog of a kind over a warehouse; ``uri`` and ``options`` are those of Paimon's catalog of that kind.

    Raises :class:`InvalidRequest` for what the kind does not take, and what opening its database raises.
    """
    given = dict(options or {})
    if kind == "filesystem":
        if uri is not None or given:
            what = "uri" if uri is not None else f"option '{next(iter(given))}'"
            raise InvalidRequest(f"the filesystem catalog takes no {what}; say catalog='jdbc' for one in a database")
        return FileSystemCatalog(store, warehouse)
    if kind == "jdbc":
        if not uri:
            raise InvalidRequest("the jdbc catalog takes a uri: sqlite:////folder/file or postgresql://host/name")
        from bitlake.catalog.jdbc import JdbcCatalog
        from bitlake.io.sql_database import open_database

        key = given.pop("catalog-key", "jdbc")
        wrong = [k for k in given if not k.startswith("jdbc.")]
        if wrong:
            raise InvalidRequest(f"'{wrong[0]}' is no option of the jdbc catalog; it takes catalog-key and jdbc.*")
        properties = {k.removeprefix("jdbc."): v for k, v in given.items()}
        return JdbcCatalog(store, warehouse, open_database(uri, properties), key)
    raise InvalidRequest(f"'{kind}' is no catalog; it is one of {', '.join(KINDS)}")
