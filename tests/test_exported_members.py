"""The promise: `bitlake.__all__` is exactly what `import bitlake` offers, and nothing else may be relied upon."""

from __future__ import annotations

import inspect
from importlib import metadata
from pathlib import Path

import bitlake
from bitlake import errors

PROMISED = {"__version__", "connect", "Lake", "Table", "Scan", "Plan"}


def error_types() -> set[str]:
    types = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    return {name for name, value in types.items() if value.__module__ == errors.__name__}


def test_all_is_the_promise() -> None:
    assert set(bitlake.__all__) == PROMISED | error_types()
    assert list(bitlake.__all__) == sorted(bitlake.__all__), "__all__ is sorted"


def test_every_promised_name_is_there_and_documented() -> None:
    for name in bitlake.__all__:
        assert inspect.getdoc(getattr(bitlake, name)), name


def test_nothing_else_is_public() -> None:
    # Rooms become attributes once something imports them; they are modules, and not promised.
    public = {n for n, v in vars(bitlake).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert public - {"annotations"} == set(bitlake.__all__) - {"__version__"}


def test_errors_have_one_root() -> None:
    assert all(issubclass(getattr(errors, name), errors.BitlakeError) for name in error_types())


def test_version_is_the_installed_one() -> None:
    assert bitlake.__version__ == metadata.version("bitlake")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(bitlake.__file__).parent / "py.typed").exists()
