"""Catalogs: where the names of databases and tables are kept; opened by their kind: filesystem, jdbc or rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from bitlake.catalog.catalog import Catalog
from bitlake.catalog.filesystem import FileSystemCatalog
from bitlake.errors import InvalidRequest
from bitlake.io import ResolvingStore, Store, open_store
from bitlake.io.base import scheme_of
from bitlake.metadata.paths import DeferredRoots, check_roots

KINDS = ("filesystem", "jdbc", "rest")
REST = "rest"
"""The kind whose warehouse is a name on a server instead of a folder."""


def connect_catalog(
    kind: str,
    warehouse: str,
    uri: str | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    configured: Mapping[str, str] | None = None,
    external_paths: Sequence[str] = (),
) -> Catalog:
    """Open a catalog with the store of its warehouse; ``kind``, ``uri`` and ``options`` are as in :func:`open_catalog`.

    ``storage_options`` and ``configured`` are as in :func:`bitlake.io.open_store`.  ``external_paths`` are folders
    outside the tables' own that may hold files of tables.
    """
    if kind == REST:
        if not uri:
            raise InvalidRequest("a rest catalog takes a uri, such as http://host:port")
        # Imported lazily, as the jdbc catalog below: a lake uses one kind of catalog.
        from bitlake.catalog import rest, rest_client, rest_store

        client = rest_client.RestClient(rest_client.rest_options(uri, warehouse, options or {}))
        catalog: Catalog = rest.RestCatalog(client, rest_store.RestStore(client, storage_options, configured))
    else:
        store = open_store_for(warehouse, storage_options, configured, external_paths)
        catalog = open_catalog(kind, store, warehouse, uri, options)
    catalog.external_roots = check_roots(external_paths)
    return catalog


def open_store_for(
    folder: str,
    options: Mapping[str, str] | None,
    configured: Mapping[str, str] | None,
    external_paths: Sequence[str],
) -> Store:
    """Open the store of a folder, which also gives access to the external paths in other stores.

    If the external paths are not known yet, the store of each path is opened when the path is used.
    """
    roots = check_roots(external_paths)
    home = scheme_of(folder), urlsplit(folder).netloc
    if options or home[0] != "file" or not isinstance(roots, DeferredRoots):
        places = [(scheme_of(r), urlsplit(r).netloc) for r in roots]
        if all(place == home or place[0] == home[0] == "file" for place in places):
            return open_store(folder, options, configured=configured)

    return ResolvingStore(options, configured, folder)


def open_catalog(
    kind: str, store: Store, warehouse: str, uri: str | None = None, options: Mapping[str, str] | None = None
) -> Catalog:
    """Open a catalog over a store; ``uri`` and ``options`` are those of Paimon's catalog of that kind.

    Raises :class:`InvalidRequest` for an unknown kind and for options that the kind does not have, and the errors of
    opening a database.
    """
    remaining = dict(options or {})
    if kind == "filesystem":
        if uri is not None or remaining:
            argument = "uri" if uri is not None else f"option '{next(iter(remaining))}'"
            raise InvalidRequest(
                f"a filesystem catalog takes no {argument}; use catalog='jdbc' for a catalog in a database"
            )
        return FileSystemCatalog(store, warehouse)
    if kind == "jdbc":
        if not uri:
            raise InvalidRequest("a jdbc catalog takes a uri, such as sqlite:////folder/file or postgresql://host/name")
        from bitlake.catalog import jdbc

        key = remaining.pop("catalog-key", "jdbc")
        unknown = [k for k in remaining if not k.startswith("jdbc.")]
        if unknown:
            raise InvalidRequest(f"unknown option '{unknown[0]}' of a jdbc catalog; it takes catalog-key and jdbc.*")
        properties = {k.removeprefix("jdbc."): v for k, v in remaining.items()}
        return jdbc.JdbcCatalog(store, warehouse, jdbc.open_database(uri, properties), key)
    raise InvalidRequest(f"unknown catalog '{kind}'; expected one of {', '.join(KINDS)}")
