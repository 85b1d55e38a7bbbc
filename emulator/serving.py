"""A model at work for one request, with its failures in LocalAI's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from emulator.admission import COOLDOWN_S, NoSlot
from emulator.context import Emulator
from emulator.failures import Failure, failure_of
from emulator.instance import Refusal, Slot
from emulator.work import BackendError, Work, whole


class Failed(Exception):
    """The model did not serve; ``failure`` is what the caller is told."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@asynccontextmanager
async def serving(app: Emulator, work: Work) -> AsyncIterator[Slot]:
    """Hold the model's slot, loading it if need be; counts the request when it went well."""
    try:
        with app.admission.slot(work.served, limits_of(work)):
            async with app.instance.serving(work.served, work.request_id) as slot:
                yield slot
    except NoSlot as full:
        if full.by_server and not app.instance.machine.is_hot(work.served):
            # For a cold model it also counts as a failed load.
            app.instance.machine.cool_down(work.served, COOLDOWN_S, app.instance.now_s())
        raise Failed(full.failure) from full
    except Refusal as refusal:
        configured = work.served in app.catalog
        raise Failed(failure_of(refusal, work.served, configured=configured)) from refusal
    except BackendError as error:
        message = f"rpc error: code = Internal desc = {error}"
        raise Failed(Failure(500, message)) from error
    app.count(work)


def limits_of(work: Work) -> object:
    """What the model's own configuration says about requests at once."""
    return None if work.model is None else work.model.extra.get("limits")


async def do(app: Emulator, work: Work, *, times: int = 1) -> None:
    """Do the whole work, ``times`` over; Failed when it cannot be done."""
    async with serving(app, work) as slot:
        await whole(work, slot, app.instance.crash)
        if times > 1:
            await slot.until(work.total_s * times)
