"""Where Iceberg metadata is, and the names of its files.

``metadata.iceberg.storage = table-location`` keeps it in ``<table>/metadata``; ``hadoop-catalog`` in
``<warehouse>/iceberg/<database>/<table>/metadata``, so that ``<warehouse>/iceberg`` is the warehouse of an Iceberg
Hadoop catalog.  ``metadata.iceberg.storage-location`` chooses one of these folders whatever the storage.

Source: Paimon's ``IcebergCommitCallback.catalogDatabasePath`` and ``IcebergPathFactory``.
"""

from __future__ import annotations

import re

from bitlake.errors import InvalidRequest
from bitlake.metadata.options import (
    CATALOG_LOCATION,
    HADOOP_CATALOG,
    ICEBERG_STORAGE,
    ICEBERG_STORAGE_LOCATION,
    Options,
)

VERSION_HINT = "version-hint.text"
"""The file with the current version, in the folder of metadata."""
_DATABASE = ".db"
_VERSION = re.compile(r"^v(\d{1,19})\.metadata\.json$", re.ASCII)
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LISTED = re.compile(rf"^(?:snap-\d+-{_UUID}\.avro|{_UUID}-m\d+\.avro|{_UUID}-d\d+\.puffin)$", re.ASCII)


def metadata_dir(root: str, options: Options) -> str:
    """The folder of a table's Iceberg metadata; raises :class:`InvalidRequest` where its folder names no database."""
    location = options.of(ICEBERG_STORAGE_LOCATION)
    if location is None and options.of(ICEBERG_STORAGE) == HADOOP_CATALOG:
        location = CATALOG_LOCATION
    if location != CATALOG_LOCATION:
        return f"{root}/metadata"
    database, _, table = root.rpartition("/")
    warehouse, _, name = database.rpartition("/")
    if not name.endswith(_DATABASE) or name == _DATABASE:
        raise InvalidRequest(
            f"table {root}: '{ICEBERG_STORAGE.name}' = '{options.of(ICEBERG_STORAGE)}' puts Iceberg metadata beside "
            f"the databases of a warehouse, and the table's folder is in no folder '<database>{_DATABASE}'; set "
            f"'{ICEBERG_STORAGE_LOCATION.name}' = 'table-location'"
        )
    return f"{warehouse}/iceberg/{name.removesuffix(_DATABASE)}/{table}/metadata"


def metadata_name(version: int) -> str:
    """The name of a version of the table metadata."""
    return f"v{version}.metadata.json"


def parse_version(name: str) -> int | None:
    """The version of a table metadata file; None for any other name."""
    match = _VERSION.match(name)
    return None if match is None else int(match.group(1))


def is_listed_file(name: str) -> bool:
    """Whether a name is that of a manifest list, a manifest or a Puffin file, which table metadata leads to."""
    return _LISTED.match(name) is not None


def is_iceberg_file(name: str) -> bool:
    """Whether a name is one of those that writers of this metadata give their files; others are not touched."""
    return name == VERSION_HINT or is_listed_file(name) or parse_version(name) is not None


def java_uri(path: str) -> str:
    """A path as Paimon (Java) writes it into Iceberg metadata: ``file:/p`` for a local one.

    Paimon finds a removed file by its exact path, so both must write the same.
    """
    for prefix in ("file://localhost/", "file:///", "/"):
        if path.startswith(prefix):
            return f"file:/{path[len(prefix) :]}"
    return path


class PublicationNames:
    """Hands out the names of one publication's manifests, manifest lists and Puffin files.  Mutable, for one thread."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._manifests = self._lists = self._vectors = 0

    def manifest(self) -> str:
        """The next name of a manifest."""
        self._manifests += 1
        return f"{self._uuid}-m{self._manifests}.avro"

    def puffin(self) -> str:
        """The next name of a Puffin file."""
        self._vectors += 1
        return f"{self._uuid}-d{self._vectors}.puffin"

    def manifest_list(self) -> str:
        """The next name of a manifest list."""
        self._lists += 1
        return f"snap-{self._lists}-{self._uuid}.avro"
