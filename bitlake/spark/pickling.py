"""Pickling functions and work items for the executors, with PySpark's own cloudpickle."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle


def dumps(value: object) -> bytes:
    """The value as bytes; functions and classes defined in a script or a notebook go by value."""
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def loads(data: bytes) -> Any:
    """The value of :func:`dumps`."""
    return cloudpickle.loads(data)
