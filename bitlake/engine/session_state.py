"""What the SQL engines of one lake share; imported with the lake, so without the modules that run statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitlake.engine.session import Session


@dataclass
class SessionState:
    """The current database, and the settings of SET by their names."""

    database: str
    settings: dict[str, str] = field(default_factory=dict)
    spark: Session | None = None
    """The session of Spark's engine, once there is one: its settings and views then hold for all."""
