"""The two judges as fixtures; a test that needs one that cannot run here is skipped, with the reason."""

from __future__ import annotations

from types import ModuleType

import pytest
from interop import paimon_java, pypaimon_peer


@pytest.fixture(scope="session")
def java() -> ModuleType:
    """interop.paimon_java, whose JVM can be started."""
    try:
        paimon_java.find_bundle()
        paimon_java.find_java()
        paimon_java.hadoop_jars()
    except paimon_java.Unavailable as e:
        pytest.skip(f"Paimon (Java): {e}")
    return paimon_java


@pytest.fixture(scope="session")
def pypaimon() -> ModuleType:
    """interop.pypaimon_peer, whose environment is there."""
    try:
        pypaimon_peer.find_python()
    except paimon_java.Unavailable as e:
        pytest.skip(f"pypaimon: {e}")
    return pypaimon_peer
