"""Answers from a lesser copy: the better one is asked for meanwhile."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from api.gateway.faults import Fault
from api.gateway.meter import Subject
from contracts.errors import HeadstartError
from contracts.ids import GatewayId, ModelId
from contracts.messages import LoadWanted, ToController
from contracts.ports import Clock, Mailbox

ASK_AGAIN_S = 5.0
MAX_MODELS = 1_000
_DEADLINE_S = 60.0
_SEND_REAL_S = 1.0


class MakeshiftDesk:
    """A CPU answers for a GPU that does not hold the model: tells the controller that it would.

    Nobody waits for that load, so nobody else asks for it, and without a controller it is left.
    """

    def __init__(
        self, *, gateway: GatewayId, to_controller: Mailbox[ToController] | None, clock: Clock
    ) -> None:
        self._gateway = gateway
        self._to_controller = to_controller
        self._clock = clock
        self._asked_at_s: OrderedDict[ModelId, float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault = Fault("makeshift_not_told")

    def note(self, subject: Subject) -> None:
        """A request goes to such a copy; told at most every few seconds for each model."""
        model, now_s = subject.model, self._clock.monotonic_s()
        if model is None or self._to_controller is None:
            return
        asked_at_s = self._asked_at_s.get(model)
        if asked_at_s is not None and now_s - asked_at_s < ASK_AGAIN_S:
            return
        self._asked_at_s[model] = now_s
        self._asked_at_s.move_to_end(model)
        if len(self._asked_at_s) > MAX_MODELS:
            self._asked_at_s.popitem(last=False)
        at_s = self._clock.now_s()
        wish = LoadWanted(
            gateway=self._gateway,
            request_id=subject.request_id,
            model=model,
            at_s=at_s,
            deadline_s=at_s + _DEADLINE_S,
            priority=subject.priority,
        )
        task = asyncio.get_running_loop().create_task(self._send(self._to_controller, wish))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, mailbox: Mailbox[ToController], wish: LoadWanted) -> None:
        try:
            async with self._clock.timeout(_SEND_REAL_S * self._clock.scale):
                await mailbox.send(wish)
        except (HeadstartError, TimeoutError) as error:
            self._fault.begin(str(error) or "not sent in time")
        else:
            self._fault.end()
