"""Whether a lease is ours at this moment, as its holder may tell without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenure:
    """What one competitor for a ``contracts.ports.Lease`` knows of it.

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
