"""The promise: `bitlake.__all__` is exactly what `import bitlake` offers, and nothing else may be relied upon."""

from __future__ import annotations

import inspect
import re
from importlib import metadata
from pathlib import Path

import pyarrow as pa

import bitlake
from bitlake import errors
from bitlake.table.history import TableHistory
from bitlake.table.indexes import TableIndexes
from bitlake.table.maintenance import TableMaintenance

PROMISED = {"__version__", "col", "connect", "register", "Lake", "Table", "Scan", "Plan"}


def error_types() -> set[str]:
    types = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    return {n for n, value in types.items() if value.__module__ == errors.__name__ and not n.startswith("_")}


def test_all_is_the_promise() -> None:
    assert set(bitlake.__all__) == PROMISED | error_types()
    assert list(bitlake.__all__) == sorted(bitlake.__all__), "__all__ is sorted"


def test_every_promised_name_is_there_and_documented() -> None:
    for name in bitlake.__all__:
        assert inspect.getdoc(getattr(bitlake, name)), name


def test_nothing_else_is_public() -> None:
    assert all(hasattr(bitlake, name) for name in bitlake.__all__)  # some are imported at their first use
    # Rooms become attributes once something imports them; they are modules, and not promised.
    public = {n for n, v in vars(bitlake).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert public - {"annotations"} == set(bitlake.__all__) - {"__version__"}


def test_errors_have_one_root() -> None:
    assert all(issubclass(getattr(errors, name), errors.BitlakeError) for name in error_types())


def test_version_is_the_installed_one() -> None:
    assert bitlake.__version__ == metadata.version("bitlake")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(bitlake.__file__).parent / "py.typed").exists()


FACADES = (bitlake.Lake, bitlake.Table, bitlake.Scan, TableIndexes, TableHistory, TableMaintenance)
INTERNAL = set("Catalog FileStoreTable Names Predicate Runner SchemaChange Store TableScan TableState".split())


def test_facades_show_nothing_of_the_core(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    table = lake.create_table("t", pa.schema({"id": pa.int64()}))
    namespaces = {"indexes", "history", "maintenance"}
    for value in (lake, table, table.indexes, table.history, table.maintenance, table.scan()):
        own = {n for n in dir(value) if not n.startswith("_")} - {n for n in dir(type(value)) if not n.startswith("_")}
        assert own == (namespaces if value is table else set()), value


def test_no_signature_names_what_only_the_core_knows() -> None:
    for kind in FACADES:
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                signature = inspect.signature(inspect.unwrap(member))
                parts = [*(p.annotation for p in signature.parameters.values()), signature.return_annotation]
                words = set(re.findall(r"\w+", " ".join(map(str, parts))))
                assert not words & INTERNAL, f"{kind.__name__}.{name}{signature}"
