"""SQL statements as values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, dataclass_transform

from bitlake.metadata.schema import SchemaChange
from bitlake.sql.text import SqlText, TableName
from bitlake.types import DataType


@dataclass_transform(frozen_default=True)
class Statement:
    """One SQL statement; each kind is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE; its type carries NOT NULL too, ``default_sql`` is SQL text."""

    name: str
    type: DataType
    comment: str | None = None
    default_sql: str | None = None


class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: str
    if_not_exists: bool = False
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class DropDatabase(Statement):
    """DROP DATABASE."""

    name: str
    if_exists: bool = False
    cascade: bool = False


class UseDatabase(Statement):
    """USE; ``or_catalog``: the name may be the lake's own as a catalog, which has the database ``default``."""

    name: str
    or_catalog: bool = False


class CreateTable(Statement):
    """CREATE TABLE, with ``query`` for CREATE TABLE … AS; ``primary_key`` from a PRIMARY KEY clause.

    ``replace``: CREATE OR REPLACE TABLE; ``must_exist``: REPLACE TABLE.
    """

    name: TableName
    if_not_exists: bool = False
    columns: tuple[ColumnDef, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    query: SqlText | None = None
    using: str | None = None
    primary_key: tuple[str, ...] = ()
    replace: bool = False
    must_exist: bool = False


class CreateView(Statement):
    """CREATE [OR REPLACE] TEMPORARY VIEW name AS query: a view of this session."""

    name: str
    query: SqlText
    replace: bool = False


class DropTable(Statement):
    """DROP TABLE."""

    name: TableName
    if_exists: bool = False


class InsertInto(Statement):
    """INSERT INTO / OVERWRITE.

    ``partition`` maps columns to values (Python literals, :class:`SqlNull` for NULL), or to None for a dynamic one;
    None without a PARTITION clause.  ``query`` is the text of the SELECT, VALUES or TABLE as written.
    ``if_not_exists``: nothing is written if the partition exists.  ``replace_where`` is a condition on partition
    columns, as written: the rows for which it holds are replaced.  ``evolve``: WITH SCHEMA EVOLUTION.  ``options`` are
    those of the write.
    """

    table: TableName
    query: SqlText
    columns: tuple[str, ...] | None = None
    partition: Mapping[str, Any] | None = None
    overwrite: bool = False
    by_name: bool = False
    if_not_exists: bool = False
    replace_where: SqlText | None = None
    evolve: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


class MultiInsert(Statement):
    """FROM … INSERT … INSERT …: the statements in their order."""

    inserts: tuple[InsertInto, ...]


class DeleteFrom(Statement):
    """DELETE FROM; the condition is text as written.  ``with_`` is a WITH clause before the statement."""

    table: TableName
    alias: str | None = None
    condition: SqlText | None = None
    with_: str = ""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``a.b = value`` in SET, or a column of INSERT with its value: text as written, None for DEFAULT.

    ``target`` is the name's parts; it may begin with the table's name or alias.
    """

    target: tuple[str, ...]
    value: SqlText | None


class Update(Statement):
    """UPDATE … SET."""

    table: TableName
    assignments: tuple[Assignment, ...]
    alias: str | None = None
    condition: SqlText | None = None
    with_: str = ""


class When(enum.Enum):
    """To which rows a clause of MERGE applies."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


class MergeAction(enum.Enum):
    """The action of a clause of MERGE."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """A WHEN clause; ``assignments`` None for the star forms (and for DELETE)."""

    when: When
    condition: SqlText | None
    action: MergeAction
    assignments: tuple[Assignment, ...] | None = None


class MergeInto(Statement):
    """MERGE INTO; ``source`` is a table's name or a query in brackets, as written, and ``source_alias`` its alias,
    with column names if it has some.  ``lenient``: star forms pass over what the source lacks of the target's columns,
    and members of structs that a value lacks are NULL.
    ``evolve``: WITH SCHEMA EVOLUTION.
    """

    table: TableName
    source: SqlText
    condition: SqlText
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    source_alias: SqlText | None = None
    with_: str = ""
    lenient: bool = False
    evolve: bool = False


class AlterTableSet(Statement):
    """ALTER TABLE … SET TBLPROPERTIES."""

    table: TableName
    properties: Mapping[str, str]


class AlterTableUnset(Statement):
    """ALTER TABLE … UNSET TBLPROPERTIES."""

    table: TableName
    keys: tuple[str, ...]
    if_exists: bool = False


class AlterColumns(Statement):
    """ALTER TABLE … ADD, DROP, RENAME, ALTER or CHANGE COLUMN, COMMENT ON TABLE: all the changes or none."""

    table: TableName
    changes: tuple[SchemaChange, ...]


class RenameTable(Statement):
    """ALTER TABLE … RENAME TO; the new name without a database stays in the old one's."""

    table: TableName
    new_name: TableName


class ShowDatabases(Statement):
    """SHOW DATABASES [LIKE]; the pattern is Spark's: ``*`` and ``|``."""

    like: str | None = None


class ShowTables(Statement):
    """SHOW TABLES [IN database] [LIKE]."""

    database: str | None = None
    like: str | None = None


class ShowCreateTable(Statement):
    """SHOW CREATE TABLE."""

    table: TableName


class ShowPartitions(Statement):
    """SHOW PARTITIONS [PARTITION (…)]."""

    table: TableName
    partition: Mapping[str, Any] | None = None


class ShowTblProperties(Statement):
    """SHOW TBLPROPERTIES, of one key or all."""

    table: TableName
    key: str | None = None


class ShowProcedures(Statement):
    """SHOW PROCEDURES [LIKE]."""

    like: str | None = None


class Analyze(Statement):
    """ANALYZE TABLE … COMPUTE STATISTICS [FOR COLUMNS … | FOR ALL COLUMNS]; ``columns`` None: of the table only."""

    table: TableName
    columns: tuple[str, ...] | None = None
    all_columns: bool = False


class Describe(Statement):
    """DESCRIBE TABLE, of one column or all, and of one partition if ``partition`` names it."""

    table: TableName
    extended: bool = False
    column: str | None = None
    partition: Mapping[str, Any] | None = None


class Truncate(Statement):
    """TRUNCATE TABLE [PARTITION (…)]."""

    table: TableName
    partition: Mapping[str, Any] | None = None


class Call(Statement):
    """CALL of a procedure (``sys.name``, lower case); arguments are Python values."""

    procedure: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


class Vacuum(Statement):
    """VACUUM: expires snapshots older than ``hours``, and deletes files that no snapshot names."""

    table: TableName
    hours: float
    dry_run: bool = False


class Explain(Statement):
    """EXPLAIN; ``mode`` is simple, extended, codegen, cost or formatted."""

    query: SqlText
    mode: str = "simple"


class Query(Statement):
    """A query, as written."""

    text: SqlText


class Other(Statement):
    """Anything else that Spark may know."""

    text: SqlText


class AlterDatabase(Statement):
    """ALTER DATABASE … SET DBPROPERTIES."""

    name: str
    properties: Mapping[str, str]


class DescribeDatabase(Statement):
    """DESCRIBE DATABASE [EXTENDED]."""

    name: str
    extended: bool = False


class CreateTableLike(Statement):
    """CREATE TABLE … LIKE; ``properties`` and ``comment`` beside those of the source."""

    name: TableName
    source: TableName
    if_not_exists: bool = False
    using: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


class CreateKeptView(Statement):
    """CREATE [OR REPLACE] VIEW: one that the catalog keeps.

    ``columns``: the new names of the query's columns, each with a comment or None; empty without a list.
    """

    name: TableName
    query: SqlText
    replace: bool = False
    if_not_exists: bool = False
    comment: str | None = None
    columns: tuple[tuple[str, str | None], ...] = ()


class DropView(Statement):
    """DROP VIEW, of the session or of the catalog; ``text`` is the statement."""

    name: TableName
    if_exists: bool
    text: SqlText


class ShowViews(Statement):
    """SHOW VIEWS [IN database] [LIKE]."""

    database: str | None = None
    like: str | None = None


class TagChange(enum.Enum):
    """The change of ALTER TABLE … TAG."""

    CREATE = "CREATE"
    REPLACE = "REPLACE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE"
    DELETE = "DELETE"
    RENAME = "RENAME"


class AlterTag(Statement):
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


class ShowTags(Statement):
    """SHOW TAGS."""

    table: TableName


class DropPartitions(Statement):
    """ALTER TABLE … DROP [IF EXISTS] PARTITION (…), PARTITION (…); a spec may leave columns out."""

    table: TableName
    partitions: tuple[Mapping[str, Any], ...]
    if_exists: bool = False


class AddPartitions(Statement):
    """ALTER TABLE … ADD [IF NOT EXISTS] PARTITION (…) PARTITION (…)."""

    table: TableName
    partitions: tuple[Mapping[str, Any], ...]
    if_not_exists: bool = False


class CreateIndex(Statement):
    """CREATE INDEX [IF NOT EXISTS] name ON table USING type (expression) [OPTIONS (…)]; the expression as written."""

    name: str
    table: TableName
    index_type: str
    expression: SqlText
    options: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


class DropIndex(Statement):
    """DROP INDEX [IF EXISTS] name ON table."""

    name: str
    table: TableName
    if_exists: bool = False


class ShowIndexes(Statement):
    """SHOW INDEXES {FROM | IN | ON} table."""

    table: TableName


class ShowColumns(Statement):
    """SHOW COLUMNS."""

    table: TableName


class ShowTableExtended(Statement):
    """SHOW TABLE EXTENDED [IN database] LIKE … [PARTITION (…)]."""

    like: str
    database: str | None = None
    partition: Mapping[str, Any] | None = None


class RefreshTable(Statement):
    """REFRESH TABLE."""

    table: TableName


class AlterView(Statement):
    """ALTER VIEW … AS: another query for a view of the session or of the catalog; ``text`` is the statement."""

    name: TableName
    query: SqlText
    text: SqlText


class RenameView(Statement):
    """ALTER VIEW … RENAME TO.  Without a database, the new name is in the view's.  ``text``: the statement."""

    name: TableName
    new_name: TableName
    text: SqlText


class DescribeQuery(Statement):
    """DESCRIBE QUERY."""

    query: SqlText


class ShowCurrentNamespace(Statement):
    """SHOW CURRENT NAMESPACE."""


class CacheTable(Statement):
    """CACHE [LAZY] TABLE, with ``query`` of a view to be made; ``text`` is the statement."""

    table: TableName
    lazy: bool
    query: SqlText | None
    text: SqlText


class UncacheTable(Statement):
    """UNCACHE TABLE; ``text`` is the statement."""

    table: TableName
    if_exists: bool
    text: SqlText


class ClearCache(Statement):
    """CLEAR CACHE."""


class ExecuteImmediate(Statement):
    """EXECUTE IMMEDIATE: a statement as an expression, variables for its result, values for its parameters.

    ``using`` has pairs of a parameter's name, None for one without, and an expression.
    """

    statement: str
    into: tuple[str, ...] = ()
    using: tuple[tuple[str | None, SqlText], ...] = ()


@dataclass(frozen=True, slots=True)
class FileFormat:
    """FILE_FORMAT: its TYPE, its other options in upper case, and the texts that mean NULL."""

    type: str
    options: Mapping[str, str] = field(default_factory=dict)
    null_if: tuple[str, ...] = ()

    def flag(self, name: str) -> bool:
        """An option that is TRUE or FALSE; FALSE by default."""
        return self.options.get(name) == "TRUE"


class CopyIntoTable(Statement):
    """COPY INTO table [(columns)] FROM 'folder' …."""

    table: TableName
    folder: str
    format: FileFormat
    columns: tuple[str, ...] | None = None
    pattern: str | None = None
    force: bool = False
    on_error: str = "ABORT_STATEMENT"


class CopyIntoFolder(Statement):
    """COPY INTO 'folder' FROM table | (query) …; ``query`` is text."""

    folder: str
    query: SqlText
    format: FileFormat
    overwrite: bool = False
