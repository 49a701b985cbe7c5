"""Statements about databases, tags, partitions and copies of tables, as values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bitlake.sql.statements import TableName


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    """ALTER DATABASE … SET DBPROPERTIES."""

    name: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DescribeDatabase:
    """DESCRIBE DATABASE [EXTENDED]."""

    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True)
class CreateTableLike:
    """CREATE TABLE … LIKE; ``properties`` and ``comment`` beside those of the source."""

    name: TableName
    source: TableName
    if_not_exists: bool = False
    using: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateKeptView:
    """CREATE [OR REPLACE] VIEW: one that the catalog keeps."""

    name: TableName
    query: str
    replace: bool = False
    if_not_exists: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW, of the session or of the catalog; ``text`` is the statement."""

    name: TableName
    if_exists: bool
    text: str


@dataclass(frozen=True, slots=True)
class ShowViews:
    """SHOW VIEWS [IN database] [LIKE]."""

    database: str | None = None
    like: str | None = None


class TagChange(enum.Enum):
    """What ALTER TABLE … TAG does."""

    CREATE = "CREATE"
    REPLACE = "REPLACE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE"
    DELETE = "DELETE"
    RENAME = "RENAME"


@dataclass(frozen=True, slots=True)
class AlterTag:
    """ALTER TABLE … CREATE | REPLACE | DELETE | RENAME TAG.

    ``lenient`` is IF NOT EXISTS or IF EXISTS; ``retained_ms`` from RETAIN, ``new_name`` of RENAME.
    """

    table: TableName
    change: TagChange
    tag: str
    lenient: bool = False
    snapshot: int | None = None
    retained_ms: int | None = None
    new_name: str | None = None


@dataclass(frozen=True, slots=True)
class ShowTags:
    """SHOW TAGS."""

    table: TableName


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """ALTER TABLE … DROP [IF EXISTS] PARTITION (…), PARTITION (…); a spec may leave columns out."""

    table: TableName
    partitions: tuple[Mapping[str, Any], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """ALTER TABLE … ADD [IF NOT EXISTS] PARTITION (…) PARTITION (…)."""

    table: TableName
    partitions: tuple[Mapping[str, Any], ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW COLUMNS."""

    table: TableName


@dataclass(frozen=True, slots=True)
class ShowTableExtended:
    """SHOW TABLE EXTENDED [IN database] LIKE … [PARTITION (…)]."""

    like: str
    database: str | None = None
    partition: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RefreshTable:
    """REFRESH TABLE."""

    table: TableName


@dataclass(frozen=True, slots=True)
class AlterView:
    """ALTER VIEW … AS: another query for a view of the session or of the catalog; ``text`` is the statement."""

    name: TableName
    query: str
    text: str


@dataclass(frozen=True, slots=True)
class DescribeQuery:
    """DESCRIBE QUERY."""

    query: str


@dataclass(frozen=True, slots=True)
class ShowCurrentNamespace:
    """SHOW CURRENT NAMESPACE."""


@dataclass(frozen=True, slots=True)
class CacheTable:
    """CACHE [LAZY] TABLE, with ``query`` of a view to be made; ``text`` is the statement."""

    table: TableName
    lazy: bool
    query: str | None
    text: str


@dataclass(frozen=True, slots=True)
class UncacheTable:
    """UNCACHE TABLE; ``text`` is the statement."""

    table: TableName
    if_exists: bool
    text: str


@dataclass(frozen=True, slots=True)
class ClearCache:
    """CLEAR CACHE."""


@dataclass(frozen=True, slots=True)
class ExecuteImmediate:
    """EXECUTE IMMEDIATE: a statement as an expression, variables for its result, values for its parameters.

    ``using`` has pairs of a parameter's name, None for one without, and an expression.
    """

    statement: str
    into: tuple[str, ...] = ()
    using: tuple[tuple[str | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FileFormat:
    """FILE_FORMAT: its TYPE, its other options in upper case, and the texts that mean NULL."""

    type: str
    options: Mapping[str, str] = field(default_factory=dict)
    null_if: tuple[str, ...] = ()

    def flag(self, name: str) -> bool:
        """An option that is TRUE or FALSE; FALSE by default."""
        return self.options.get(name) == "TRUE"


@dataclass(frozen=True, slots=True)
class CopyIntoTable:
    """COPY INTO table [(columns)] FROM 'folder' …."""

    table: TableName
    folder: str
    format: FileFormat
    columns: tuple[str, ...] | None = None
    pattern: str | None = None
    force: bool = False
    on_error: str = "ABORT_STATEMENT"


@dataclass(frozen=True, slots=True)
class CopyIntoFolder:
    """COPY INTO 'folder' FROM table | (query) …; ``query`` is text."""

    folder: str
    query: str
    format: FileFormat
    overwrite: bool = False


DdlStatement = (
    AlterDatabase
    | DescribeDatabase
    | CreateTableLike
    | CreateKeptView
    | DropView
    | ShowViews
    | AlterTag
    | ShowTags
    | DropPartitions
    | AddPartitions
    | ShowColumns
    | ShowTableExtended
    | RefreshTable
    | AlterView
    | DescribeQuery
    | ShowCurrentNamespace
    | CacheTable
    | UncacheTable
    | ClearCache
    | ExecuteImmediate
    | CopyIntoTable
    | CopyIntoFolder
)
