"""What every test shares: hypothesis' profile, the grouping of Spark tests, and the one session of a test process."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from spark_classes import java_options

# Derandomised: a red build must be red for everybody, and green again only by a change of the code.
settings.register_profile(
    "bitlake",
    derandomize=True,
    deadline=None,
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("bitlake")

# Processes that tests start have the same.
os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())

_path = [str(Path(__file__).with_name("spark_python")), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in _path if p)

STARTED = time.monotonic()
LIMIT = float(os.environ.get("BITLAKE_SECONDS", math.inf))
"""The seconds in which tests of this process may begin: CI bounds suites of random cases, whatever its machine."""

# Fixtures that start a Spark session; a test that asks for one (also through another fixture) is a Spark test.
SPARK_FIXTURES = {"spark"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark Spark tests, and start them first: they take longest."""
    for item in items:
        if SPARK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)  # stable: order inside a file stays


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip what would begin too late."""
    if time.monotonic() - STARTED > LIMIT:
        pytest.skip(f"the {LIMIT:.0f} seconds of this suite are over")


gc.disable()  # until the tests are collected: nearly all objects stay


def pytest_collection_finish() -> None:
    """Leave what collecting the tests made out of garbage collection, whose full runs visit everything else."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let extension modules see their objects go, as they report those that stay."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, Spark tests run in one process as long as there are others for the rest."""
    from scheduling import CasesOfDoors, SparkInOnePlace

    made = {"loadfile": SparkInOnePlace, "loadscope": CasesOfDoors}.get(config.getvalue("dist"))
    return None if made is None else made(config, log)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A real S3 server process on loopback, one for a test process; tests use folders of their own in its bucket."""
    import s3_server

    with s3_server.running() as endpoint:
        yield endpoint


def _remember_java_names() -> None:
    """Let PySpark look up each class of the JVM once.

    It asks for the same dozen names thousands of times, and the JVM looks for some of them in all of Spark's archives.
    """
    from py4j.java_gateway import JavaClass, JavaPackage, JVMView

    for kind in (JVMView, JavaPackage):

        def remembered(self: Any, name: str, look_up: Any = kind.__getattr__) -> Any:
            found = look_up(self, name)
            if isinstance(found, (JavaClass, JavaPackage)):
                self.__dict__[name] = found
            return found

        kind.__getattr__ = remembered


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The Spark session of this test process, made on first use and stopped at the end.

    With ``BITLAKE_TEST_SPARK=connect`` it is a client of a local Connect server (``make versions``).
    """
    _remember_java_names()
    if os.environ.get("BITLAKE_TEST_SPARK", "classic") == "connect":
        from connect_client import connected as start
    else:
        from bitlake.spark.session import get_or_create as start
    session = start()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_driver_queries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave queries of small tables to Spark, as if they were large, unless a test uses ``driver_queries``."""
    if "spark" in request.fixturenames and "driver_queries" not in request.fixturenames:
        monkeypatch.setattr("bitlake.spark.read.driver_query._has_duckdb", lambda: False)


@pytest.fixture
def driver_queries() -> None:
    """DuckDB computes queries of few rows in Spark's driver, as it does by default."""
