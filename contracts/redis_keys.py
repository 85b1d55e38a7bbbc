"""Every key that is kept in Redis, by name; nothing else makes up one.

What follows ``headstart:`` up to the next colon is the key's *use*. Keys that one command, script
or transaction touches together have one use, and in a Redis Cluster the use is their hash tag:
there ``headstart:lease:token`` is ``headstart:{lease}:token``, and lies beside the lease. On one
server no name has a tag.
"""

from __future__ import annotations

PREFIX = "headstart:"
"""All our keys start with it, so that a shared server can be looked through and cleaned."""

EVENTS = PREFIX + "events"
DECISIONS = PREFIX + "decisions"
DECISIONS_INDEX = PREFIX + "decisions:index"
TO_CONTROLLER = PREFIX + "to-controller"
TO_GATEWAYS = PREFIX + "to-gateways"
FORECASTS = PREFIX + "forecasts"
FORECASTS_UPDATES = PREFIX + "forecasts:updates"
FORECASTS_TOKEN = PREFIX + "forecasts:token"
BACKTESTS = PREFIX + "backtests"
HISTORY_MODELS = PREFIX + "history:models"
HISTORY_PLACE = PREFIX + "history:place"
HISTORY_TOKEN = PREFIX + "history:token"
WORLD = PREFIX + "world"
ROUTING = PREFIX + "routing"
ROUTING_TOKEN = PREFIX + "routing:token"
BASELINES = PREFIX + "baselines"
SLAS = PREFIX + "slas"
PINS = PREFIX + "pins"
PROFILES = PREFIX + "profiles"
PROFILES_ADDED_TO = PREFIX + "profiles:added-to"
MODE = PREFIX + "mode"
GPU_YIELD = PREFIX + "gpu_yield"
LEASE = PREFIX + "lease"
LEASE_TOKEN = PREFIX + "lease:token"
PREDICTOR_LEASE = PREFIX + "predictor-lease"
PREDICTOR_LEASE_TOKEN = PREFIX + "predictor-lease:token"
PREDICTORS = PREFIX + "predictors"
LIMITS = PREFIX + "limits"
SCALING = PREFIX + "scaling"
BATCHES = PREFIX + "batches"
FORMAT = PREFIX + "format"
FORMAT_LOCK = PREFIX + "format:lock"


def history_ring(width_s: float, model: str) -> str:
    """The ring of a model's counts in buckets of this width."""
    return f"{PREFIX}history:{width_s:.0f}:{model}"


def load_lock(model: str) -> str:
    """Held by the gateway that orders this load alone."""
    return f"{PREFIX}load-lock:{model}"


def batch_taken(batch_id: str) -> str:
    """Which worker has a batch."""
    return f"{PREFIX}batch-taken:{batch_id}"


def job_cancelled(job_id: str) -> str:
    """Says that nobody wants this job any more."""
    return f"{PREFIX}job-cancelled:{job_id}"


def job_result(job_id: str) -> str:
    """The one result of a job."""
    return f"{PREFIX}job-result:{job_id}"


def job_lost(job_id: str) -> str:
    """Says that a job's record was gone before the job ran."""
    return f"{PREFIX}job-lost:{job_id}"


def job_unreadable(job_id: str) -> str:
    """A job's record that cannot be read, out of RQ's way."""
    return f"{PREFIX}job-unreadable:{job_id}"


def tagged(key: str) -> str:
    """The same key in a Redis Cluster: its use in braces.

    Also for patterns that say the whole use, such as ``headstart:history:*``.
    """
    use, colon, rest = key.removeprefix(PREFIX).partition(":")
    return f"{PREFIX}{{{use}}}{colon}{rest}"
