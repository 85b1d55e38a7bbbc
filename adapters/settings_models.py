"""The keys of one model in ``headstart.yaml``."""

from __future__ import annotations

from adapters.settings_queue import MAX_WAITING
from adapters.settings_types import (
    Accelerator,
    FallbackRule,
    Number,
    OnAbort,
    Priority,
    Section,
    WarmUpWord,
    Whole,
    setting,
)
from adapters.settings_variants import VariantEntry

_DAY_S = 86_400


class SchedulingProfile(Section):
    """What is known about a model beforehand. Measured values win over it."""

    memory_footprint_mb: Whole | None = setting(
        "Memory it takes while loaded, in MiB.", default=None, ge=1, le=1024**3
    )
    gpu_acceleration_factor: Number | None = setting(
        "How many times faster it is on a GPU than on CPUs: what a rung on CPUs is expected to "
        "take until that was measured.",
        default=None,
        gt=0,
        le=100_000,
    )
    priority_class: Priority | None = setting(
        "Class of its requests; high, medium and low are realtime, batch and background.",
        default=None,
    )
    max_acceptable_latency_ms: Number | None = setting(
        "Latency target, until one is set through the API.", default=None, gt=0, le=3_600_000
    )
    preferred_backend: Accelerator | None = setting(
        "Accelerator it should run on, where backends of several kinds know it.", default=None
    )


class ModelTimeouts(Section):
    """Limits of one model's requests. None: those of `gateway.timeouts`."""

    connect_seconds: Number | None = setting(
        "Connecting to LocalAI.", default=None, gt=0, le=_DAY_S
    )
    first_byte_seconds: Number | None = setting(
        "From sending a request until LocalAI's first byte.", default=None, gt=0, le=_DAY_S
    )
    between_bytes_seconds: Number | None = setting(
        "Between two pieces of an answer.", default=None, gt=0, le=_DAY_S
    )


class Model(Section):
    """What Headstart should know about one model of LocalAI's, whose own keys may stand here."""

    scheduling_profile: SchedulingProfile = setting(
        "What is known about it beforehand.", default=SchedulingProfile()
    )
    timeouts: ModelTimeouts = setting(
        "Limits of its requests, where they differ from `gateway.timeouts`.",
        default=ModelTimeouts(),
    )
    preload: bool = setting("Load it at start.", default=False)
    pinned: bool = setting(
        "Never unload it.",
        default=False,
    )
    standby: bool = setting(
        "Load it again whenever nothing else needs its memory; it gives way to what is asked for.",
        default=False,
    )
    warm_up: WarmUpWord = setting(
        "Whether it answers something small of its kind once it was loaded ahead of its use: "
        "`auto` unless that takes long (images, sounds), `always`, or `never`.",
        default="auto",
    )
    on_abort: OnAbort = setting(
        "What becomes of an answer whose caller has left: `cancel` cuts it, `drain` reads it to "
        "its end, for backends that do not bear a cut.",
        default="cancel",
    )
    slots: Whole | None = setting(
        "Its requests that run at once; more wait in their class. None: no limit here.",
        default=None,
        ge=1,
        le=MAX_WAITING,
    )
    variants: tuple[VariantEntry, ...] = setting(
        "Its ladder, the best first: what may answer while the model itself is not to be had. A "
        "name alone stands for `model`.",
        default=(),
        allowed="a list of model names, and of mappings that say what is made",
    )
    fallback: FallbackRule = setting(
        "Whether its requests may be answered from its ladder: `allow` unless their caller "
        "refuses, `ask` those that say `X-Headstart-Fallback: allow`, `deny` none.",
        default="allow",
    )
