"""Maintenance: how good forecasts were over the last week."""

from __future__ import annotations

from collections.abc import Mapping

from workers.tools import JobContext, Tools

KIND = "backtest"


async def run(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """See ``workers.learning.backtest``."""
    from workers.learning import backtest  # heavy, and few jobs need it

    return await backtest(payload, context, tools)
