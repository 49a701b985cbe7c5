from __future__ import annotations

import gc

import pytest

from bitlake.metadata.manifest import paused


def test_the_collector_waits_and_is_then_as_it_was() -> None:
    assert gc.isenabled()

    @paused()
    def inside() -> None:
        assert not gc.isenabled()
        with paused():
            pass
        assert not gc.isenabled()
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        inside()
    assert gc.isenabled()
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
