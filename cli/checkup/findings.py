"""One line of a check-up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it stands."""

    OK = "ok"
    WARN = "warn"
    """It works, and will not always."""
    FAIL = "fail"
    """It does not work, or harms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, how it stands, why, and what to do.

    Attributes
    ----------
    check : str
        What kind of thing, such as ``redis.persistence``; stable, for programs.
    subject : str
        Which one: a node, a folder, a model.
    what : str
        What was found, with its numbers.
    remedy : str
        What to do; empty where all is well.
    """

    check: str
    subject: str
    verdict: Verdict
    what: str
    remedy: str = ""


def ok(check: str, subject: str, what: str) -> Finding:
    """All is well."""
    return Finding(check=check, subject=subject, verdict=Verdict.OK, what=what)


def warn(check: str, subject: str, what: str, remedy: str) -> Finding:
    """It works, and will not always."""
    return Finding(check=check, subject=subject, verdict=Verdict.WARN, what=what, remedy=remedy)


def fail(check: str, subject: str, what: str, remedy: str) -> Finding:
    """It does not work, or harms."""
    return Finding(check=check, subject=subject, verdict=Verdict.FAIL, what=what, remedy=remedy)
