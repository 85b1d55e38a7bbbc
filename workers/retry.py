"""What follows from a job's failure: run it again, and when, or give it up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from contracts.errors import HeadstartError, Transient


class Stopped(HeadstartError):
    """The worker stops, so the job was broken off; nothing is wrong with the job."""


class Held(HeadstartError):
    """The job may not start yet.

    Attributes
    ----------
    after_s : float
        When to look again, in seconds from now.
    """

    def __init__(self, message: str, *, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


class Turn(HeadstartError):
    """The job has had its time, or somebody else works on it: others go first, then again.

    Attributes
    ----------
    after_s : float
        When to go on, in seconds from now.
    """

    def __init__(self, message: str, *, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


class Verdict(StrEnum):
    """What becomes of the job."""

    PUT_BACK = "put_back"
    """Into its queue as if it had not run."""
    RETRY = "retry"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """What has become of a job's earlier runs.

    Attributes
    ----------
    failures : int
        Runs that ended in an error which said nothing of when to come back.
    refusals : int
        Runs that were refused with a time to come back.
    holds : int
        Times that it was not let start.
    """

    failures: int = 0
    refusals: int = 0
    holds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How patient to be.

    Attributes
    ----------
    max_failures : int
        So many failures in all, then the job has failed.
    max_refusals : int
        Back-pressure is no failure, but a model that never loads must not be tried for ever.
    first_s, longest_s : float
        The wait doubles from the first to the longest.
    max_age_s : float
        A job is not begun again when it is older than this.
    """

    max_failures: int = 6
    max_refusals: int = 100
    first_s: float = 2.0
    longest_s: float = 300.0
    max_age_s: float = 24 * 3600.0


DEFAULT_POLICY = RetryPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """The verdict with its reason; ``attempts`` is what to remember with the job."""

    verdict: Verdict
    after_s: float
    reason: str
    attempts: Attempts


def decide(
    error: HeadstartError, *, attempts: Attempts, age_s: float, policy: RetryPolicy
) -> RetryDecision:
    """What follows from ``error`` in a job that was enqueued ``age_s`` ago.

    A job that was held or broken off is put back and loses nothing. A refusal that names a
    time waits at least that long. Errors that cannot pass end the job at once.
    """
    if isinstance(error, Stopped):
        return _decision(Verdict.PUT_BACK, 0.0, str(error), attempts)
    if isinstance(error, Turn):
        return _decision(Verdict.RETRY, error.after_s, str(error), attempts)
    if isinstance(error, Held):
        held = Attempts(
            failures=attempts.failures, refusals=attempts.refusals, holds=attempts.holds + 1
        )
        if age_s >= policy.max_age_s:
            return _decision(Verdict.GIVE_UP, 0.0, _too_old(error, age_s), held)
        return _decision(Verdict.PUT_BACK, error.after_s, str(error), held)
    if isinstance(error, Transient):
        return _after_transient(error, attempts=attempts, age_s=age_s, policy=policy)
    return _decision(Verdict.GIVE_UP, 0.0, str(error), attempts)


def _after_transient(
    error: Transient, *, attempts: Attempts, age_s: float, policy: RetryPolicy
) -> RetryDecision:
    refused = error.retry_after_s is not None
    counted = Attempts(
        failures=attempts.failures + (not refused),
        refusals=attempts.refusals + refused,
        holds=attempts.holds,
    )
    if age_s >= policy.max_age_s:
        return _decision(Verdict.GIVE_UP, 0.0, _too_old(error, age_s), counted)
    if counted.failures >= policy.max_failures:
        reason = f"failed {counted.failures} times, at last: {error}"
        return _decision(Verdict.GIVE_UP, 0.0, reason, counted)
    if counted.refusals >= policy.max_refusals:
        reason = f"refused {counted.refusals} times, at last: {error}"
        return _decision(Verdict.GIVE_UP, 0.0, reason, counted)
    tries = (counted.refusals if refused else counted.failures) - 1
    # The exponent is bounded: 2.0 ** 1024 is an error, and the wait is capped long before.
    backoff_s = min(policy.longest_s, policy.first_s * 2.0 ** min(tries, 30))
    after_s = max(error.retry_after_s or 0.0, backoff_s)
    return _decision(Verdict.RETRY, min(after_s, policy.max_age_s), str(error), counted)


def _too_old(error: HeadstartError, age_s: float) -> str:
    return f"not done within {age_s / 3600:.1f} h, at last: {error}"


def _decision(verdict: Verdict, after_s: float, reason: str, attempts: Attempts) -> RetryDecision:
    return RetryDecision(verdict=verdict, after_s=after_s, reason=reason, attempts=attempts)
