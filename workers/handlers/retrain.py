"""Maintenance: trains the challenger anew, and lets it take over only where it is better."""

from __future__ import annotations

from collections.abc import Mapping

from workers.tools import JobContext, Tools

KIND = "retrain"


async def run(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """See ``workers.learning.retrain``."""
    from workers.learning import retrain  # heavy, and few jobs need it

    return await retrain(payload, context, tools)
