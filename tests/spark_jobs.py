"""How many Spark jobs an action runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def jobs_of(spark: Any, action: Callable[[], Result]) -> tuple[Result, int]:
    """What an action returns, and the number of jobs that this thread ran for it; needs a classic session."""
    context = spark.sparkContext
    group = str(uuid.uuid4())
    context.setJobGroup(group, "")
    try:
        result = action()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return result, len(context.statusTracker().getJobIdsForGroup(group))
