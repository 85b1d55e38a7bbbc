"""Leases: who leads or owns, and whether it is us, as we may tell without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Lease(Protocol):
    """Who leads. Its times are on the given clock, so they scale with it."""

    async def acquire(self, owner: str, *, now_s: float, lease_s: float) -> int | None:
        """A fencing token greater than all before, or None while another owner holds it.

        The present owner renews and keeps its token.
        """
        ...

    async def release(self, owner: str) -> None:
        """Give it back; nothing happens where another holds it."""
        ...


@dataclass(frozen=True, slots=True)
class Tenure:
    """What one competitor for a ``Lease`` knows of it.

    Attributes
    ----------
    token : int or None
        The fencing token of its term; None: somebody else holds the lease, or nobody.
    until_s : float
        Until when that is sure, on a clock that never steps and runs while a process is stopped.
    """

    token: int | None = None
    until_s: float = 0.0

    def holds(self, monotonic_s: float) -> bool:
        """Whether nobody else can have got the lease by now."""
        return self.token is not None and monotonic_s < self.until_s

    def answered(self, token: int | None, *, asked_s: float, lease_s: float) -> Tenure:
        """After the store said ``token`` to a question that was put at ``asked_s``.

        Counted from before the question: ours ends no later than the store's.
        """
        return Tenure() if token is None else Tenure(token, asked_s + lease_s)
