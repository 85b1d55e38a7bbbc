"""Exceptions that may cross a wall.

HeadstartError
├── Invalid      what was asked is wrong; asking again the same way cannot help
├── Transient    the other side is away or busy; the same call may succeed later
└── Permanent    the other side refused; it will refuse again until something changes

Adapters raise these and nothing else; shells decide what follows from them. Anything
outside this tree is a bug and is not caught.
"""

from __future__ import annotations


class HeadstartError(Exception):
    """Base of every expected failure."""


class Invalid(HeadstartError):
    """The input is wrong: names the value, what is allowed, and what to do."""


class Transient(HeadstartError):
    """The other side cannot answer now.

    Attributes
    ----------
    retry_after_s : float or None
        When the other side asked to be called again, in seconds from now.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Permanent(HeadstartError):
    """The other side refused and will refuse again."""


class Busy(Transient):
    """A model still serves requests, so it was not stopped."""


class NotLeader(Transient):
    """The lease was lost: what was about to be ordered is no longer ours to order."""
