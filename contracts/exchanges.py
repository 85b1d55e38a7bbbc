"""Whole answers of the gateway, as background work takes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """A whole answer to a background request; ``content_type`` as the server gave it."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A whole answer of whatever status.

    Attributes
    ----------
    error_type : str
        The ``type`` of an error answer; empty where it names none, or is no error.
    retry_after_s : float or None
        When to come back, where the answer says so.
    request_id : str
        The id that the answer was given under.
    """

    status: int
    body: bytes
    content_type: str = "application/json"
    error_type: str = ""
    retry_after_s: float | None = None
    request_id: str = ""
