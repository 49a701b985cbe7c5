"""SQL statements carried out by the core, in this process; the Spark room adds those that need a session of Spark's.

:class:`SessionState` is what the engines of one lake share; the lake imports it without what runs statements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitlake.engine.session import Session


@dataclass
class SessionState:
    """The current database, the lake's time zone, and the settings of SET by their names."""

    database: str
    timezone: str = "UTC"
    """The zone in which literals are read that name none, unless SET TIME ZONE sets another."""
    settings: dict[str, str] = field(default_factory=dict)
    spark: Session | None = None
    """The session of Spark's engine, once there is one: its settings and views then hold for all."""
