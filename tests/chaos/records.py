"""What clients, gateways and LocalAIs wrote down, as the checkers read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class End(StrEnum):
    """How a request ended for the client that sent it."""

    COMPLETE = "complete"
    """A whole answer with a status below 400."""
    REFUSED = "refused"
    """An error that says what it is, before any answer."""
    ERROR_EVENT = "error-event"
    """A stream that began, and ended with an error in its own format."""
    BROKEN = "broken"
    """The connection ended or was reset before the end of the answer."""
    LEFT = "left"
    """The client itself left."""
    HANGS = "hangs"
    """Nobody ended it within all the time there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a client. Times are seconds of the clock.

    Attributes
    ----------
    operation : str
        ``stream``, ``chat``, ``embed`` or ``hear``.
    expected, said : str
        The text that its answer has to have, and what came of it.
    named : tuple of str
        Ids that the pieces of the answer carry; only its own may be there.
    """

    request_id: str
    operation: str
    gateway: str
    model: str
    expected: str
    sent_s: float
    first_s: float | None
    ended_s: float
    end: End
    status: int | None = None
    said: str = ""
    named: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of the gateways' event log about a request.

    ``what``: ``received``, ``dispatched``, ``first``, ``completed``, ``failed``, ``cancelled``.
    """

    event_id: str
    source: str
    at_s: float
    request_id: str
    what: str
    status: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Did:
    """One line of a LocalAI's event log. ``life``: which of its processes wrote it."""

    node: str
    life: int
    at_s: float
    what: str
    model: str
    request_id: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A background request that was accepted, and what became of it; ``state`` empty: gone."""

    job_id: str
    accepted_s: float
    state: str
    expected: str = ""
    said: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that was accepted: its lines with the text each has to have, and its files."""

    batch_id: str
    status: str
    expected: Mapping[str, str]
    output: tuple[tuple[str, str], ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a process: whose it was; ``by_us``: it was killed by the run itself."""

    role: str
    pid: int
    at_s: float
    by_us: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """Something that must not grow: its value early in the run and at the end, and its bound."""

    name: str
    early: float
    late: float
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must hold and did not."""

    check: str
    about: str
    what: str
    at_s: float = 0.0
