"""Snapshot files: one version of the table each (table-format spec, section 3).

UTF-8 JSON, Jackson's pretty print, members in the order of :data:`_MEMBERS`; absent values are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.formatting import time_words
from bitlake.metadata.java_json import camel_case, check_members, dumps, load_object
from bitlake.metadata.paths import check_file_names

VERSION = 3
"""The format version written, and the last one known."""
BATCH_IDENTIFIER = 2**63 - 1
"""The commit identifier of every batch commit."""
KINDS = ("APPEND", "COMPACT", "OVERWRITE", "ANALYZE")
OPERATIONS = frozenset(
    (
        "WRITE OVERWRITE DELETE TRUNCATE UPDATE MERGE CREATE_TABLE_AS_SELECT REPLACE_TABLE_AS_SELECT "
        "CREATE_OR_REPLACE_TABLE_AS_SELECT"
    ).split()
)
"""The values of ``operation``: Paimon cannot read a snapshot with another one."""

_ATTRIBUTES = (
    "version uuid id schema_id base_manifest_list base_manifest_list_size delta_manifest_list "
    "delta_manifest_list_size changelog_manifest_list changelog_manifest_list_size index_manifest commit_user "
    "writer_version commit_identifier commit_kind time_millis total_record_count delta_record_count "
    "changelog_record_count watermark statistics properties next_row_id operation"
).split()
_MEMBERS = {camel_case(name): name for name in _ATTRIBUTES}
"""The file's members in their order, such as ``schemaId``, each with its attribute."""
_EARLIEST_MS = -62_135_510_400_000
_LATEST_MS = 253_402_214_400_000
"""A day after the first and before the last instant of Python's calendar, so that every time zone can show them."""
_NAMES = frozenset(_MEMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of a table: which manifests make it up, who committed it and how.  None means absent.

    >>> snapshot = table.snapshot
    >>> snapshot.id, snapshot.commit_kind, snapshot.total_record_count, snapshot.delta_record_count
    (2, 'APPEND', 6, 2)
    >>> print(snapshot.to_json())
    {
      "version" : 3,
      "uuid" : "...",
      "id" : 2,
      "schemaId" : 0,
    ...
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int
    delta_record_count: int
    version: int = VERSION
    uuid: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    writer_version: str | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: dict[str, str] = field(default_factory=dict, hash=False)
    next_row_id: int | None = None
    operation: str | None = None
    keeps_empty_properties: bool = field(default=False, repr=False)
    """Whether the file has an empty ``properties`` object, which is written again, as in Paimon."""

    def __repr__(self) -> str:
        rows = f"{self.total_record_count or 0:,} rows"
        return f"Snapshot({self.id}: {self.commit_kind} at {time_words(self.time_millis)}, {rows})"

    def to_json(self) -> str:
        """The file's text, as Jackson writes it."""
        out: dict[str, Any] = {}
        for name, attribute in _MEMBERS.items():
            value = getattr(self, attribute)
            if value is not None and (value != {} or self.keeps_empty_properties):
                out[name] = value
        return dumps(out)

    @staticmethod
    def from_json(data: bytes, path: str = "snapshot") -> Snapshot:
        """Parse a snapshot (or tag) file; unknown members are ignored.

        Raises :class:`CorruptError`, and :class:`UnsupportedFeature` for a version newer than this code.
        """
        o = load_object(data, path)
        check_members(o, _NAMES)
        version = o.maybe_int("version") or 1
        if version > VERSION:
            raise UnsupportedFeature(f"{path}: snapshot version {version} is newer than {VERSION}, the last one known")
        snapshot = Snapshot(
            version=version,
            uuid=o.maybe_text("uuid"),
            id=o.int("id"),
            schema_id=o.int("schemaId"),
            base_manifest_list=o.text("baseManifestList"),
            base_manifest_list_size=o.maybe_int("baseManifestListSize"),
            delta_manifest_list=o.text("deltaManifestList"),
            delta_manifest_list_size=o.maybe_int("deltaManifestListSize"),
            changelog_manifest_list=o.maybe_text("changelogManifestList"),
            changelog_manifest_list_size=o.maybe_int("changelogManifestListSize"),
            index_manifest=o.maybe_text("indexManifest"),
            commit_user=o.text("commitUser"),
            writer_version=o.maybe_text("writerVersion"),
            commit_identifier=o.int("commitIdentifier"),
            commit_kind=o.text("commitKind"),
            time_millis=o.int("timeMillis"),
            # Absent in files of early releases; they are sums, so 0 is the honest default for display only.
            total_record_count=o.maybe_int("totalRecordCount") or 0,
            delta_record_count=o.maybe_int("deltaRecordCount") or 0,
            changelog_record_count=o.maybe_int("changelogRecordCount"),
            watermark=o.maybe_int("watermark"),
            statistics=o.maybe_text("statistics"),
            properties=o.mapping("properties"),
            next_row_id=o.maybe_int("nextRowId"),
            operation=o.maybe_text("operation"),
            keeps_empty_properties=o.value.get("properties") == {},
        )
        if not _EARLIEST_MS <= snapshot.time_millis <= _LATEST_MS:
            raise CorruptError(
                f"'timeMillis' is {snapshot.time_millis}, which is outside of the years 1 to 9999", None, path
            )
        try:
            check_file_names(snapshot.metadata_names, "manifest list, index manifest or statistics file")
        except CorruptError as e:
            raise e.within(path) from e
        return snapshot

    def with_lists(self, base: tuple[str, int], delta: tuple[str, int]) -> Snapshot:
        """The snapshot with other manifest lists, each a name and a size in bytes, an OVERWRITE without changelog."""
        return replace(
            self,
            base_manifest_list=base[0],
            base_manifest_list_size=base[1],
            delta_manifest_list=delta[0],
            delta_manifest_list_size=delta[1],
            changelog_manifest_list=None,
            changelog_manifest_list_size=None,
            changelog_record_count=None,
            commit_kind="OVERWRITE",
        )

    @property
    def metadata_names(self) -> list[str]:
        """The names of the manifest lists, the index manifest and the statistics file."""
        lists = [self.base_manifest_list, self.delta_manifest_list, self.changelog_manifest_list]
        return [name for name in (*lists, self.index_manifest, self.statistics) if name is not None]
