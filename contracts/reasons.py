"""The closed list of reasons that decisions, metrics, answers and the dashboard share."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why something was decided. ``explain`` gives the sentence that people are shown."""

    # Loads
    DEMAND = "demand"
    FORECAST = "forecast"
    OPERATOR = "operator"
    PRELOAD = "preload"
    STANDBY = "standby"
    SCHEDULE = "schedule"
    ROOM_BACK = "room_back"
    WARM = "warm"
    # Evictions
    LEAST_EXPECTED_LOSS = "least_expected_loss"
    LEAST_RECENTLY_USED = "least_recently_used"
    IDLE_TIMEOUT = "idle_timeout"
    LEAST_VALUE_PER_BYTE = "least_value_per_byte"
    HIGHEST_SCORE = "highest_score"
    GHOST = "ghost"
    FAIR_TURN = "fair_turn"
    OTHERS_NEED = "others_need"
    PREEMPTED = "preempted"
    # Holds: nothing is done although something could be
    IN_FLIGHT = "in_flight"
    PINNED = "pinned"
    LOADING = "loading"
    DRAINING = "draining"
    MEMORY_NOT_BACK = "memory_not_back"
    MINIMUM_RESIDENCY = "minimum_residency"
    GAIN_TOO_SMALL = "gain_too_small"
    NO_ROOM = "no_room"
    LOAD_SLOTS_FULL = "load_slots_full"
    COOL_DOWN = "cool_down"
    PREFETCH_OFF = "prefetch_off"
    PREFETCH_WASTE = "prefetch_waste"
    OBSERVE_ONLY = "observe_only"
    SHUTTING_DOWN = "shutting_down"
    MAY_WAIT = "may_wait"
    GROUP_LIMIT = "group_limit"
    GPU_BUSY = "gpu_busy"
    CPU_BUSY = "cpu_busy"
    VRAM_FULL = "vram_full"
    LOADS_SLOW = "loads_slow"
    GPU_YIELDED = "gpu_yielded"
    # Seen, not decided: LocalAI did it
    LOCALAI_UNLOADED = "localai_unloaded"
    LOCALAI_RESTARTED = "localai_restarted"
    # Refusals
    NEVER_FITS = "never_fits"
    UNKNOWN_MODEL = "unknown_model"
    NODE_LOST = "node_lost"
    # Instances behind a name
    INSTANCE_FOUND = "instance_found"
    INSTANCE_MISSING = "instance_missing"
    INSTANCE_BACK = "instance_back"
    INSTANCE_FLAPS = "instance_flaps"
    INSTANCE_GONE = "instance_gone"
    TOO_MANY_INSTANCES = "too_many_instances"
    # Abstentions, since too little is known
    NO_FORECAST = "no_forecast"
    FORECAST_DEGRADED = "forecast_degraded"
    UNKNOWN_FOOTPRINT = "unknown_footprint"
    # Gateway
    RESIDENT = "resident"
    PASS_THROUGH = "pass_through"  # noqa: S105 - a reason, not a password
    NO_CONTROLLER = "no_controller"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    MODEL_LOADING = "model_loading"
    UPSTREAM_ERROR = "upstream_error"
    # Answered from a lower rung
    CPU_FALLBACK = "cpu_fallback"
    SMALLER_VARIANT = "smaller_variant"
    FEWER_GPU_LAYERS = "fewer_gpu_layers"
    OUT_OF_MEMORY = "out_of_memory"
    # Background jobs
    CLASS_SLOTS_FULL = "class_slots_full"
    HIGHER_CLASS_WAITS = "higher_class_waits"
    NOT_RESIDENT = "not_resident"
    WAITED_LONGEST = "waited_longest"
    # Replicas
    LIVE_NEED = "live_need"
    FORECAST_NEED = "forecast_need"
    PANIC = "panic"
    WOKEN = "woken"
    ENOUGH = "enough"
    STARTING = "starting"
    START_OVERDUE = "start_overdue"
    STABILISING = "stabilising"
    NEEDED_LESS = "needed_less"
    NOBODY_ASKS = "nobody_asks"
    AT_LARGEST = "at_largest"
    OVER_BUDGET = "over_budget"
    SCALER_FAILED = "scaler_failed"


_SENTENCES: dict[Reason, str] = {
    Reason.DEMAND: "a request waits for this model",
    Reason.FORECAST: "a request is expected soon enough to be worth the load",
    Reason.OPERATOR: "somebody asked for it",
    Reason.STANDBY: "it is to be ready whenever nothing else needs the memory",
    Reason.PRELOAD: "the configuration asks for it at start",
    Reason.ROOM_BACK: "another program took its memory, which is free again",
    Reason.SCHEDULE: "a warm-up schedule wants it resident now",
    Reason.WARM: "its weights are read ahead, since it is likely to be loaded",
    Reason.LEAST_EXPECTED_LOSS: "of all idle models its absence is expected to cost least per byte",
    Reason.LEAST_RECENTLY_USED: "it was used longest ago (no usable forecast, or policy lru)",
    Reason.IDLE_TIMEOUT: "nobody used it for the idle time",
    Reason.LEAST_VALUE_PER_BYTE: "it has the least frequency times load time per byte (gdsf)",
    Reason.HIGHEST_SCORE: "it has the highest victim score (weighted-score)",
    Reason.GHOST: "its process is dead although LocalAI still lists it",
    Reason.OTHERS_NEED: "another program needs the memory",
    Reason.FAIR_TURN: "requests of another model have waited for its place for a whole turn",
    Reason.PREEMPTED: "work that may be put back makes room for a realtime request",
    Reason.IN_FLIGHT: "it serves requests",
    Reason.PINNED: "it is pinned",
    Reason.LOADING: "it is still loading",
    Reason.MEMORY_NOT_BACK: "it was stopped, but the probe does not show its memory as free",
    Reason.DRAINING: "it waits for its last requests to end",
    Reason.MINIMUM_RESIDENCY: "it was loaded so recently that unloading it would thrash",
    Reason.GAIN_TOO_SMALL: "the expected gain does not beat what the victims would lose",
    Reason.NO_ROOM: "it does not fit beside what may not be unloaded",
    Reason.LOAD_SLOTS_FULL: "as many loads as allowed run already",
    Reason.COOL_DOWN: "its last load failed and LocalAI cools down",
    Reason.PREFETCH_OFF: "prefetching is switched off",
    Reason.PREFETCH_WASTE: "too many recent prefetches were not used",
    Reason.OBSERVE_ONLY: "the mode is observe: decided, not ordered",
    Reason.SHUTTING_DOWN: "the service is stopping",
    Reason.MAY_WAIT: "only batch or background work waits for it, and what would go was just used",
    Reason.GROUP_LIMIT: "it is larger than what its group may take",
    Reason.LOCALAI_UNLOADED: "LocalAI unloaded it by itself (its limit, watchdog or reclaimer)",
    Reason.LOCALAI_RESTARTED: "LocalAI began anew, so everything that was resident is gone",
    Reason.GPU_BUSY: "the GPU works for longer than gpu_utilization_threshold allows beside it",
    Reason.CPU_BUSY: "the CPUs work for longer than cpu_utilization_threshold allows beside it",
    Reason.VRAM_FULL: "more GPU memory is taken than vram_usage_threshold allows beside it",
    Reason.LOADS_SLOW: "loads take much longer than they used to",
    Reason.GPU_YIELDED: "the GPU was handed over to another program",
    Reason.NEVER_FITS: "it is larger than the whole memory budget",
    Reason.UNKNOWN_MODEL: "LocalAI does not list this model",
    Reason.NODE_LOST: "the node does not answer",
    Reason.INSTANCE_FOUND: "its address came up behind the name of LocalAI",
    Reason.INSTANCE_MISSING: "its address is missing behind the name of LocalAI: it gets nothing",
    Reason.INSTANCE_BACK: "its address is behind the name of LocalAI again",
    Reason.INSTANCE_FLAPS: "its address comes and goes, so it stays until it is gone for good",
    Reason.INSTANCE_GONE: "its address has been gone from behind the name of LocalAI for too long",
    Reason.TOO_MANY_INSTANCES: "there are as many instances as may be",
    Reason.NO_FORECAST: "there is no valid forecast for it",
    Reason.FORECAST_DEGRADED: "its forecast is worse than the naive floor",
    Reason.UNKNOWN_FOOTPRINT: "nobody knows how much memory it needs",
    Reason.RESIDENT: "the model was resident",
    Reason.PASS_THROUGH: "nothing is known about the model, or it is not ours to schedule",
    Reason.NO_CONTROLLER: "no controller answered, so the gateway acted alone",
    Reason.QUEUE_FULL: "the queue of its class is full",
    Reason.QUEUE_TIMEOUT: "it waited longer than the queue allows",
    Reason.MODEL_LOADING: "the model was still loading when the wait budget ended",
    Reason.UPSTREAM_ERROR: "LocalAI refused the connection or broke it",
    Reason.CPU_FALLBACK: "a CPU answers sooner than the model could be had on its GPU",
    Reason.SMALLER_VARIANT: "a smaller variant answers sooner than the model could be had",
    Reason.FEWER_GPU_LAYERS: "the model with fewer layers on the GPU answers sooner than whole",
    Reason.OUT_OF_MEMORY: "its last load ran out of memory, and it is left alone for a while",
    Reason.CLASS_SLOTS_FULL: "as many requests of its class run as may now",
    Reason.HIGHER_CLASS_WAITS: "requests of a higher class wait",
    Reason.NOT_RESIDENT: "its model is not resident, and background work may load none now",
    Reason.WAITED_LONGEST: "it was held for as long as a background request may be",
    Reason.LIVE_NEED: "so many are needed for what is asked now",
    Reason.FORECAST_NEED: "so many will be needed by the time that a new one serves",
    Reason.PANIC: "far more is asked than what is ready can serve",
    Reason.WOKEN: "somebody asks, and there is none",
    Reason.ENOUGH: "there are as many as are needed",
    Reason.STARTING: "what is missing was ordered and is starting",
    Reason.START_OVERDUE: "what was ordered has not come in three times its start-up time",
    Reason.STABILISING: "fewer would do, but not for long enough yet",
    Reason.NEEDED_LESS: "fewer were needed all the time that is looked back on",
    Reason.NOBODY_ASKS: "nobody asked for the idle time, and nobody is expected",
    Reason.AT_LARGEST: "more are needed than its bound allows",
    Reason.OVER_BUDGET: "more are needed than its budget pays for",
    Reason.SCALER_FAILED: "the order was not taken; it is tried again",
}


def explain(reason: Reason) -> str:
    """The sentence that people are shown for ``reason``."""
    return _SENTENCES[reason]
