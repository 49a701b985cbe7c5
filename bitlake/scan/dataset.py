"""A scan as an Arrow dataset: engines push columns and filters into it, and bitlake plans them with its indexes.

DuckDB, Polars, DataFusion and Arrow itself call ``dataset.scanner(columns=…, filter=…)``.  The filter is an Arrow
expression (:mod:`bitlake.expressions.arrow_expression`).  What it implies as a predicate joins the scan's condition,
which prunes files, pages and rows; Arrow applies the filter itself to the remaining rows unless the predicate is exact.
A filter that bitlake does not understand prunes less, but returns the same rows.

pyarrow's own methods also reach the C++ object below a dataset, past :meth:`ScanDataset.scanner`: a union of datasets,
a node of Acero.  That object is a dataset of one file that cannot be opened; its error says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from bitlake import arguments
from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.arrow_expression import columns_of, decode, implied
from bitlake.expressions.binder import bind
from bitlake.expressions.tree import IsNull
from bitlake.lazy_modules import install_command
from bitlake.scan.scan import TableScan

_ADVICE = "pyarrow cannot do this with a bitlake dataset; give it dataset.to_table() or dataset.scanner().to_reader()"


class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no type stubs
    """The rows of a scan as a ``pyarrow.dataset.Dataset``, at the snapshot at which the scan was made.

    >>> import pyarrow.compute as pc
    >>> dataset = table.dataset()
    >>> dataset.to_table(columns=["order_id"], filter=pc.field("status") == "SENT").to_pydict()
    {'order_id': [4]}
    """

    def __init__(self, scan: TableScan, residual: pc.Expression | None = None) -> None:
        store = fs.PyFileSystem(_Unreadable())
        file = ds.IpcFileFormat().make_fragment(scan.state.name, store)
        super().__init__([file], scan.schema, ds.IpcFileFormat(), store)
        self._scan = scan
        self._residual = residual

    def __repr__(self) -> str:
        return f"Dataset{repr(self._scan).removeprefix('Scan')}"

    def __reduce__(self) -> tuple[Any, ...]:
        # The session of Spark, the log of scans and the plan stay behind.
        scan = replace(self._scan, _to_spark=None, _executors=None, _planned=[], _recorder=None)
        return type(self), (scan, self._residual)

    @property
    def files(self) -> list[str]:
        """The paths of the data files that the scan reads, deleted and replaced rows included.

        >>> len(table.scan(where="status = 'SENT'").dataset().files)
        1
        """
        return [f.path for f in self._scan.plan().files]

    @property
    def partition_expression(self) -> pc.Expression:
        """A condition on all rows: none is known."""
        return pc.scalar(True)

    # --- reading -----------------------------------------------------------------------------------------------------

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        batch_size: int = 131_072,
        batch_readahead: int = 2,
        use_threads: bool = True,
        memory_pool: Any = None,
        **_: Any,
    ) -> ds.Scanner:
        """Make a scanner of columns (names, or expressions by name) and of the rows for which ``filter`` is TRUE.

        Settings for files (``fragment_scan_options``, ``fragment_readahead``, ``cache_metadata``) have no effect.
        Raises :class:`NotFound` for an unknown column, before anything is read.

        >>> table.dataset().scanner(columns=["order_id"]).to_reader().read_all().num_rows
        6
        """
        scan, residual = self._narrowed(filter)
        read = self._columns_to_read(columns, residual)
        reader = replace(scan.select(read), checks_text=True).to_reader(batch_size)
        return ds.Scanner.from_batches(
            reader,
            columns=list(columns) if columns is not None and not isinstance(columns, Mapping) else columns,
            filter=residual,
            batch_size=batch_size,
            batch_readahead=batch_readahead,
            use_threads=use_threads,
            memory_pool=memory_pool,
        )

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Count rows, from metadata and indexes where they suffice.

        >>> import pyarrow.compute as pc
        >>> table.dataset().count_rows(filter=pc.field("status") == "NEW")
        3
        """
        scan, residual = self._narrowed(filter)
        return scan.count() if residual is None else int(self.scanner(filter=filter, **options).count_rows())

    def filter(self, expression: pc.Expression) -> ScanDataset:
        """The rows for which an expression is TRUE, as a dataset.

        >>> import pyarrow.compute as pc
        >>> table.dataset().filter(pc.field("amount") > 50).to_table().num_rows
        2
        """
        return ScanDataset(*self._narrowed(expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ScanFragment]:
        """The dataset as one fragment, whose scanner reads files ahead in threads of its own.

        >>> [fragment.count_rows() for fragment in table.dataset().get_fragments()]
        [6]
        """
        yield ScanFragment(self if filter is None else self.filter(filter))

    def _narrowed(self, filter: pc.Expression | None) -> tuple[TableScan, pc.Expression | None]:
        """The scan with what a filter implies, and what Arrow must apply to its rows."""
        scan = self._scan
        if filter is None:
            return scan, self._residual
        if isinstance(filter, pa.Scalar):
            filter = pc.scalar(filter)  # DataFusion's form of a condition without columns
        tree = decode(filter)
        for name in sorted(columns_of(tree)):
            self._check_column(name)
        both = filter if self._residual is None else self._residual & filter
        if scan.row_limit is not None:
            return scan, both  # the limit comes first
        predicate, exact = implied(tree, scan.state.schema.fields, scan.timezone)
        return scan.where_bound(predicate), self._residual if exact else both

    def _columns_to_read(
        self, columns: Sequence[str] | Mapping[str, pc.Expression] | None, residual: pc.Expression | None
    ) -> list[str]:
        """Columns of the scan, in its order, that a result and Arrow's filter need; at least one, to count rows by."""
        if columns is None:
            return list(self._scan.columns)
        needed: set[str] = set() if residual is None else set(columns_of(decode(residual)))
        if isinstance(columns, Mapping):
            needed.update(*(columns_of(decode(e)) for e in columns.values()))
        else:
            needed.update(arguments.names("columns", columns))
        for name in needed:
            self._check_column(name)
        return [c for c in self._scan.columns if c in needed] or list(self._scan.columns[:1])

    def _check_column(self, name: str) -> None:
        if name in self._scan.columns:
            return
        fields = [f for f in self._scan.state.schema.fields if f.name in self._scan.columns]
        bind(IsNull(name), fields)  # raises an error with near names
        raise NotFound(f"table '{self._scan.state.name}': the dataset has no column '{name}'; names match by case")

    # --- what pyarrow does with the C++ dataset --------------------------------------------------------------------

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows in memory, sorted."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows in memory, joined with another dataset's."""
        return ds.InMemoryDataset(self.to_table().join(_in_memory(right_dataset), *arguments, **options))

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows in memory, joined with another dataset's nearest."""
        return ds.InMemoryDataset(self.to_table().join_asof(_in_memory(right_dataset), *arguments, **options))

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Refuse another schema: :class:`InvalidRequest`."""
        raise InvalidRequest(f"table '{self._scan.state.name}': {_ADVICE}")


class ScanFragment:
    """A whole dataset, as the fragment that engines read which ask for fragments."""

    def __init__(self, dataset: ScanDataset) -> None:
        self._dataset = dataset
        self.physical_schema = dataset.schema
        self.partition_expression = dataset.partition_expression

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> ds.Scanner:
        """Make a scanner, as the dataset's."""
        return self._dataset.scanner(**options)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Read in batches."""
        batches: Iterator[pa.RecordBatch] = self.scanner(**options).to_batches()
        return batches

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Read into one table."""
        return self.scanner(**options).to_table()

    def count_rows(self, **options: Any) -> int:
        """Count rows."""
        return self._dataset.count_rows(**options)


def import_duckdb() -> Any:
    """The ``duckdb`` module; raises :class:`InvalidRequest` where it is not installed."""
    try:
        import duckdb
    except ModuleNotFoundError as e:
        raise InvalidRequest(f"duckdb is not installed: `{install_command('duckdb')}`") from e
    return duckdb


class _Unreadable(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no type stubs
    """The file system of the C++ dataset's only file."""

    def get_type_name(self) -> str:
        return "bitlake"

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> NoReturn:
        raise InvalidRequest(f"table '{path}': {_ADVICE}")

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(p, fs.FileType.File) for p in paths]

    def _refuse(self, *_: Any) -> NoReturn:
        raise InvalidRequest(_ADVICE)

    open_input_stream = open_input_file
    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


def _in_memory(other: Any) -> Any:
    return other.to_table() if isinstance(other, ds.Dataset) else other
