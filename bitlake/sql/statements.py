"""SQL statements as values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bitlake.expressions.sql_text import quoted
from bitlake.metadata.schema import SchemaChange
from bitlake.types import DataType


class SqlNull(enum.Enum):
    """NULL written as a partition value, as opposed to None for a partition left to the rows."""

    NULL = "NULL"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as named in SQL; ``database`` None means the current one.

    ``catalog`` is only set for a catalog that is not the lake's (``spark_catalog``).
    """

    database: str | None
    table: str
    catalog: str | None = None

    def __str__(self) -> str:
        return ".".join(quote_name(p) for p in (self.catalog, self.database, self.table) if p is not None)


def quote_name(name: str) -> str:
    """A name in backticks, unless it is a plain word."""
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit()
    return name if plain else quoted(name)


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE; its type carries NOT NULL too, ``default_sql`` is SQL text."""

    name: str
    type: DataType
    comment: str | None = None
    not_null: bool = False
    default_sql: str | None = None


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool = False
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """DROP DATABASE."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class UseDatabase:
    """USE; ``or_catalog``: the name may be the lake's own as a catalog, which has the database ``default``."""

    name: str
    or_catalog: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE, with ``query`` for CREATE TABLE … AS; ``primary_key`` from a PRIMARY KEY clause.

    ``replace``: CREATE OR REPLACE TABLE; ``must_exist``: REPLACE TABLE.
    """

    name: TableName
    if_not_exists: bool = False
    columns: tuple[ColumnDef, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    using: str | None = None
    primary_key: tuple[str, ...] = ()
    replace: bool = False
    must_exist: bool = False


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE [OR REPLACE] TEMPORARY VIEW name AS query: a view of this session."""

    name: str
    query: str
    replace: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE."""

    name: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertInto:
    """INSERT INTO / OVERWRITE.

    ``partition`` maps columns to values (Python literals, :class:`SqlNull` for NULL), or to None for a dynamic one;
    None without a PARTITION clause.  ``query`` is the text of the SELECT, VALUES or TABLE as written.
    ``if_not_exists``: nothing is written if the partition exists.  ``replace_where`` is a condition on partition
    columns, as written: the rows for which it holds are replaced.  ``evolve``: WITH SCHEMA EVOLUTION.  ``options`` are
    those of the write.
    """

    table: TableName
    query: str
    columns: tuple[str, ...] | None = None
    partition: Mapping[str, Any] | None = None
    overwrite: bool = False
    by_name: bool = False
    if_not_exists: bool = False
    replace_where: str | None = None
    evolve: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MultiInsert:
    """FROM … INSERT … INSERT …: the statements in their order."""

    inserts: tuple[InsertInto, ...]


@dataclass(frozen=True, slots=True)
class DeleteFrom:
    """DELETE FROM; the condition is text as written.  ``with_`` is a WITH clause before the statement."""

    table: TableName
    alias: str | None = None
    condition: str | None = None
    with_: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``a.b = value`` in SET, or a column of INSERT with its value: text as written, None for DEFAULT.

    ``target`` is the name's parts; it may begin with the table's name or alias.
    """

    target: tuple[str, ...]
    value: str | None


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE … SET."""

    table: TableName
    assignments: tuple[Assignment, ...]
    alias: str | None = None
    condition: str | None = None
    with_: str = ""


class When(enum.Enum):
    """To which rows a clause of MERGE applies."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


class MergeAction(enum.Enum):
    """What a clause of MERGE does."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """A WHEN clause; ``assignments`` None for the star forms (and for DELETE)."""

    when: When
    condition: str | None
    action: MergeAction
    assignments: tuple[Assignment, ...] | None = None


@dataclass(frozen=True, slots=True)
class MergeInto:
    """MERGE INTO; ``source`` is a table's name or a query in brackets, as written, and ``source_alias`` its alias,
    with column names if it has some.  ``lenient``: star forms pass over what the source lacks of the target's columns,
    and members of structs that a value lacks are NULL.
    ``evolve``: WITH SCHEMA EVOLUTION.
    """

    table: TableName
    source: str
    condition: str
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    source_alias: str | None = None
    with_: str = ""
    lenient: bool = False
    evolve: bool = False


@dataclass(frozen=True, slots=True)
class AlterTableSet:
    """ALTER TABLE … SET TBLPROPERTIES."""

    table: TableName
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlterTableUnset:
    """ALTER TABLE … UNSET TBLPROPERTIES."""

    table: TableName
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """ALTER TABLE … ADD, DROP, RENAME, ALTER or CHANGE COLUMN, COMMENT ON TABLE: all the changes or none."""

    table: TableName
    changes: tuple[SchemaChange, ...]


@dataclass(frozen=True, slots=True)
class RenameTable:
    """ALTER TABLE … RENAME TO; the new name without a database stays in the old one's."""

    table: TableName
    new_name: TableName


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    """SHOW DATABASES [LIKE]; the pattern is Spark's: ``*`` and ``|``."""

    like: str | None = None


@dataclass(frozen=True, slots=True)
class ShowTables:
    """SHOW TABLES [IN database] [LIKE]."""

    database: str | None = None
    like: str | None = None


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    """SHOW CREATE TABLE."""

    table: TableName


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """SHOW PARTITIONS [PARTITION (…)]."""

    table: TableName
    partition: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ShowTblProperties:
    """SHOW TBLPROPERTIES, of one key or all."""

    table: TableName
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ShowProcedures:
    """SHOW PROCEDURES [LIKE]."""

    like: str | None = None


@dataclass(frozen=True, slots=True)
class Analyze:
    """ANALYZE TABLE … COMPUTE STATISTICS [FOR COLUMNS … | FOR ALL COLUMNS]; ``columns`` None: of the table only."""

    table: TableName
    columns: tuple[str, ...] | None = None
    all_columns: bool = False


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE TABLE, of one column or all, and of one partition if ``partition`` names it."""

    table: TableName
    extended: bool = False
    column: str | None = None
    partition: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE TABLE [PARTITION (…)]."""

    table: TableName
    partition: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """CALL of a procedure (``sys.name``, lower case); arguments are Python values."""

    procedure: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN; ``mode`` is simple, extended, codegen, cost or formatted."""

    query: str
    mode: str = "simple"


@dataclass(frozen=True, slots=True)
class Query:
    """A query, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Other:
    """Anything else that Spark may know."""

    text: str


Statement: TypeAlias = (
    "CreateDatabase | DropDatabase | UseDatabase | CreateTable | CreateView | DropTable | InsertInto | "
    "MultiInsert | DeleteFrom | "
    "Update | MergeInto | AlterTableSet | AlterTableUnset | AlterColumns | RenameTable | ShowDatabases | ShowTables "
    "| ShowCreateTable | ShowPartitions | ShowTblProperties | ShowProcedures | Analyze | Describe | Truncate | Call "
    "| Explain | Query | Other | DdlStatement"
)


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
