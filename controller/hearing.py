"""The controller's mailbox, and since when it is heard: who is deaf cannot tell who is silent."""

from __future__ import annotations

from contracts.errors import Transient
from contracts.messages import ToController
from contracts.ports import Clock, Mailbox


class Hearing:
    """Listens for one term.

    Attributes
    ----------
    since_s : float or None
        Since when nothing was missed; None: the mailbox is away.
    last_s : float
        When it was looked into last.
    """

    def __init__(self, mailbox: Mailbox[ToController], clock: Clock) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self.since_s: float | None = None
        self.last_s = 0.0

    async def receive(self, after: str, *, block_s: float) -> tuple[str, tuple[ToController, ...]]:
        """As ``Mailbox.receive``."""
        try:
            received = await self._mailbox.receive(after, block_s=block_s)
        except Transient:
            self.since_s = None
            raise
        self.last_s = self._clock.now_s()
        if self.since_s is None or self.since_s > self.last_s:
            self.since_s = self.last_s  # also where the clock was set back
        return received
