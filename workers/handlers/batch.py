"""A batch's turn: the job only says that there is work, the batch's record says what."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.errors import Invalid
from workers.batches.run import BatchRun
from workers.tools import JobContext, Tools

KIND = "batch"


async def run(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Work on the batch ``{batch_id}`` until it has ended.

    Raises
    ------
    Invalid
        The payload names no batch.
    Turn
        Others are to go first.
    Transient
        A store is away.
    """
    batch_id = payload.get("batch_id")
    if not isinstance(batch_id, str) or set(payload) != {"batch_id"}:
        raise Invalid("payload: takes batch_id alone, a text")
    if tools.batches is None or tools.files is None or tools.line_results is None:
        raise Invalid("this worker has no store of batches")
    batch = await BatchRun(batch_id, context.job_id, tools).take_turn()
    return {"batch_id": batch_id, "status": None if batch is None else batch.status.value}
