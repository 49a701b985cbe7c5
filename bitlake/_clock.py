"""The only module that reads the clock or makes random ids, so that tests can fix both."""

from __future__ import annotations

import datetime
import time
import uuid


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def local_ms() -> int:
    """The local wall clock, as milliseconds since the epoch *as if it were UTC* (Paimon's ``_CREATION_TIME``)."""
    local = datetime.datetime.now().astimezone()
    offset = local.utcoffset() or datetime.timedelta()
    return int((local.timestamp() + offset.total_seconds()) * 1000)


def new_uuid() -> str:
    """A random UUID in its canonical text form."""
    return str(uuid.uuid4())
