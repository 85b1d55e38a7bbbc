"""Checked settings → the plain values that each process is told."""

from __future__ import annotations

from adapters.key_hash import KEY_HASH_PREFIX, digest_of
from adapters.settings_models import Model, ModelTimeouts
from adapters.settings_nodes import discovery_config, name_of, node_thresholds
from adapters.settings_scaling import scaling_config
from adapters.settings_schema import Document
from adapters.settings_types import MIB
from adapters.settings_variants import ladder_options, ladders, makes_variants
from contracts.config import (
    BalancingConfig,
    CallerKey,
    ClassHeader,
    ControlConfig,
    ControllerConfig,
    GatewayConfig,
    ModelProfile,
    MonitoringConfig,
    NodeConfig,
    PlannerConfig,
    PredictorConfig,
    PriorityWeights,
    QueueConfig,
    StrainConfig,
    TimeoutConfig,
    WarmConfig,
    WarmUp,
    WarmUpSchedule,
    WorkersConfig,
)
from contracts.events import PriorityClass
from contracts.groups import OTHERS_PRECEDENCE, USUAL_PRECEDENCE, GroupConfig, Groups
from contracts.ids import ModelId, NodeId
from contracts.variants import Fallback

ONLY_NODE = NodeId("localai")
"""Name of the node where one ``localai.url`` is configured."""

WORKER_KEY_NAME = "headstart-workers"
"""What the key of ``workers.gateway_key`` is called."""

BATCH_PATIENCE = 4
BACKGROUND_PATIENCE = 20
"""How many times longer than realtime the other classes wait, unless their own time is set."""

USUAL_FREE_MB = 1024
"""Host memory that stays free whatever is read ahead."""

USUAL_WARM_HORIZON_S = 900.0
"""A model that is likely to be loaded within a quarter of an hour is worth its page cache."""

PRIORITIES = {
    "high": PriorityClass.REALTIME,
    "medium": PriorityClass.BATCH,
    "low": PriorityClass.BACKGROUND,
}


def priority_of(word: str) -> PriorityClass:
    """The class that ``priority_class`` names, by either kind of word."""
    return PRIORITIES.get(word) or PriorityClass(word)


def nodes(document: Document) -> tuple[NodeConfig, ...]:
    """The LocalAI instances; exactly one of them is primary."""
    localai = document.localai
    if not localai.backends:
        key = localai.api_key
        return (
            NodeConfig(
                node=ONLY_NODE,
                url=localai.url,
                api_key=None if key is None else key.get_secret_value(),
                accelerator=localai.accelerator,
                models_path=localai.models_path,
                probe=localai.probe,
                thresholds=node_thresholds(localai.thresholds),
                behind=name_of(document),
            ),
        )
    marked = [backend.name for backend in localai.backends if backend.primary]
    primary = marked[0] if marked else localai.backends[0].name
    return tuple(
        NodeConfig(
            node=NodeId(backend.name),
            url=backend.url,
            api_key=None if backend.api_key is None else backend.api_key.get_secret_value(),
            accelerator=backend.accelerator,
            models_path=backend.models_path,
            primary=backend.name == primary,
            probe=backend.probe,
            thresholds=node_thresholds(localai.thresholds),
            behind=name_of(document, backend),
        )
        for backend in localai.backends
    )


def gateway_config(document: Document) -> GatewayConfig:
    """What the gateway is told."""
    gateway, timeouts = document.gateway, document.gateway.timeouts
    return GatewayConfig(
        host=gateway.host,
        port=gateway.port,
        nodes=nodes(document),
        keys=tuple(key.get_secret_value() for key in gateway.keys),
        callers=callers(document),
        queue=queue_config(document),
        max_connections=gateway.max_connections,
        max_body_bytes=gateway.max_body_mb * MIB,
        spool_bytes=gateway.spool_mb * MIB,
        keepalive_comments=gateway.keepalive_comments,
        keepalive_s=gateway.keepalive_seconds,
        health_check_agents=gateway.health_check_agents,
        expose_topology=gateway.expose_topology,
        connect_timeout_s=timeouts.connect_seconds,
        first_byte_timeout_s=timeouts.first_byte_seconds,
        between_bytes_timeout_s=timeouts.between_bytes_seconds,
        load_answer_timeout_s=timeouts.load_answer_seconds,
        min_load_budget_s=timeouts.min_load_budget_seconds,
        slots={ModelId(name): m.slots for name, m in document.models.items() if m.slots},
        drains_on_leave=frozenset(
            ModelId(name) for name, m in document.models.items() if m.on_abort == "drain"
        ),
        shutdown_grace_s=timeouts.shutdown_grace_seconds,
        control_url=_control_url(document),
        makes_variants=makes_variants(document),
        balancing=balancing_config(document),
        groups=groups(document),
        timeouts={
            ModelId(name): TimeoutConfig(
                connect_s=own.connect_seconds,
                first_byte_s=own.first_byte_seconds,
                between_bytes_s=own.between_bytes_seconds,
            )
            for name, own in ((name, m.timeouts) for name, m in document.models.items())
            if own != ModelTimeouts()
        },
    )


def _control_url(document: Document) -> str | None:
    if not document.gateway.serve_batches:
        return None
    return document.gateway.control_url or f"http://127.0.0.1:{document.control.port}"


def balancing_config(document: Document) -> BalancingConfig:
    """How a backend is chosen."""
    balancing = document.load_balancing
    by_turns = balancing.strategy == "weighted-round-robin"
    return BalancingConfig(
        strategy="weighted-round-robin" if by_turns else "resource-aware",
        weights=balancing.weights.model_dump(),
        circuit_failures=balancing.circuit_failures,
    )


def callers(document: Document) -> tuple[CallerKey, ...]:
    """The keys that have a name, that of our own workers included.

    That one alone asks nobody for a key: it may be for a gateway elsewhere.
    """
    gateway = document.gateway
    named = [
        CallerKey(
            name=key.name,
            digest=bytes.fromhex(key.hash.get_secret_value().removeprefix(KEY_HASH_PREFIX)),
            priority=None if key.priority_class is None else priority_of(key.priority_class),
            class_header=ClassHeader(key.class_header),
            requests_per_min=key.requests_per_minute,
            models=key.models,
            weight=key.weight,
            fallback=None if key.fallback is None else Fallback(key.fallback),
        )
        for key in gateway.named_keys
    ]
    own = document.workers.gateway_key
    if own is not None and (named or gateway.keys):
        digest = digest_of(own.get_secret_value())
        if all(key.digest != digest for key in named):
            named.append(CallerKey(name=WORKER_KEY_NAME, digest=digest))
    return tuple(named)


def queue_config(document: Document) -> QueueConfig:
    """Admission. ``timeout_seconds`` is realtime's; the others' times follow from it."""
    queue = document.queue_config
    batch_s, background_s = queue.batch_timeout_seconds, queue.background_timeout_seconds
    realtime_s = queue.timeout_seconds
    return QueueConfig(
        capacity={
            PriorityClass.REALTIME: queue.realtime_capacity,
            PriorityClass.BATCH: queue.batch_capacity,
            PriorityClass.BACKGROUND: queue.background_capacity,
        },
        timeout_s={
            PriorityClass.REALTIME: realtime_s,
            PriorityClass.BATCH: BATCH_PATIENCE * realtime_s if batch_s is None else batch_s,
            PriorityClass.BACKGROUND: (
                BACKGROUND_PATIENCE * realtime_s if background_s is None else background_s
            ),
        },
        weights=PriorityWeights(**queue.weights.model_dump()),
        longest_wait_s=queue.longest_wait_seconds,
        max_preemptions=queue.max_preemptions,
    )


def control_config(document: Document) -> ControlConfig:
    """What the control API is told."""
    control = document.control
    key = control.admin_key
    return ControlConfig(
        host=control.host,
        port=control.port,
        admin_key=None if key is None else key.get_secret_value(),
        open_reads=control.open_reads,
        groups=groups(document),
    )


def workers_config(document: Document) -> WorkersConfig:
    """What the workers are told."""
    workers = document.workers
    key = workers.gateway_key or next(iter(document.gateway.keys), None)
    return WorkersConfig(
        gateway_key=None if key is None else key.get_secret_value(),
        retention_cron=workers.maintenance.retention or workers.retention_schedule,
        time_zone=workers.time_zone,
        backtest_cron=workers.maintenance.backtest,
        retrain_cron=workers.maintenance.retrain,
        profiles_cron=workers.maintenance.profiles,
        max_processes=workers.max_processes,
        webhook_secret=(
            None if workers.webhook_secret is None else workers.webhook_secret.get_secret_value()
        ),
        webhooks_to_private=workers.webhooks_to_private,
        files_url=workers.files_url,
        files_max_bytes=int(workers.files_max_gb * 1024**3),
    )


def controller_config(
    document: Document, *, preload: bool | tuple[ModelId, ...] = True
) -> ControllerConfig:
    """What the controller is told. ``preload``: which marked models of LocalAI's it loads."""
    scheduler = document.scheduler
    poll_s = scheduler.poll_seconds
    return ControllerConfig(
        nodes=nodes(document),
        profiles={ModelId(name): profile_of(name, m) for name, m in document.models.items()},
        planner=planner_config(document),
        active_by_default=scheduler.mode != "observe",
        poll_s=document.resource_monitoring.interval_seconds if poll_s is None else poll_s,
        lease_s=scheduler.lease_seconds,
        load_timeout_s=scheduler.load_timeout_seconds,
        drain_timeout_s=scheduler.drain_timeout_seconds,
        batch_slots=document.workers.batch_slots,
        monitoring=monitoring_config(document),
        preload=preload,
        ladders=ladders(document),
        ladder_options=ladder_options(document),
        scaling=scaling_config(document.autoscaling, document.compose_scaler),
        discovery=discovery_config(document),
    )


def monitoring_config(document: Document) -> MonitoringConfig:
    """How the machine is looked at."""
    monitoring = document.resource_monitoring
    return MonitoringConfig(
        interval_s=monitoring.interval_seconds,
        gpu_metrics=monitoring.gpu_metrics,
        cpu_metrics=monitoring.cpu_metrics,
        probes=monitoring.probes,
        gpus=",".join(monitoring.gpus) or None,
    )


def strain_config(document: Document) -> StrainConfig:
    """From where on prefetches and batches wait."""
    monitoring = document.resource_monitoring
    return StrainConfig(
        gpu_ratio=monitoring.gpu_utilization_threshold,
        cpu_ratio=monitoring.cpu_utilization_threshold,
        vram_ratio=monitoring.vram_usage_threshold,
        load_window_s=monitoring.model_load_latency_window,
        percentile=monitoring.inference_latency_percentile,
    )


def planner_config(document: Document) -> PlannerConfig:
    """What the planner is parametrised by."""
    scheduler, optimization, memory = document.scheduler, document.optimization, document.memory
    budget_mb, host_mb = memory.gpu_budget_mb, memory.host_budget_mb
    prefetch_window_s = optimization.prefetch_window_minutes * 60
    return PlannerConfig(
        policy="headstart" if scheduler.mode == "resource-aware" else scheduler.policy,
        window_s=scheduler.window_seconds,
        parallel_loads=scheduler.parallel_loads,
        prefetch=optimization.prefetch_enabled,
        prefetch_horizon_s=min(scheduler.prefetch_horizon_seconds, prefetch_window_s),
        prefetch_margin=scheduler.prefetch_margin,
        prefetch_waste_target=scheduler.prefetch_waste_target,
        min_residency_s=scheduler.min_residency_seconds,
        idle_timeout_s=scheduler.idle_timeout_seconds,
        default_target_s=scheduler.default_target_seconds,
        reserve_ratio=memory.reserve_ratio,
        budget_bytes=None if budget_mb is None else budget_mb * MIB,
        host_budget_bytes=None if host_mb is None else host_mb * MIB,
        tick_s=scheduler.tick_seconds,
        turn_s=scheduler.turn_seconds,
        turn_drain_s=scheduler.turn_drain_seconds,
        strain=strain_config(document),
        groups=groups(document),
        warm=warm_config(document),
        schedules=schedules(document),
        standby=frozenset(ModelId(name) for name, one in document.models.items() if one.standby),
    )


def groups(document: Document) -> Groups:
    """Groups by kind of work, by name."""
    return {
        name: GroupConfig(
            name=name,
            models=group.models,
            memory_bytes=group.memory_limit,
            cpu_cores=group.cpu_limit,
            gpus=group.gpu_limit,
            concurrency=group.concurrency,
            queue=group.queue,
            precedence=(
                USUAL_PRECEDENCE.get(name, OTHERS_PRECEDENCE)
                if group.precedence is None
                else group.precedence
            ),
        )
        for name, group in document.resources.items()
    }


def warm_config(document: Document) -> WarmConfig | None:
    """What is kept in the page cache; None: nothing is."""
    optimization, memory = document.optimization, document.memory_optimization
    is_off = not optimization.enable_model_caching or memory.model_caching_strategy == "none"
    if is_off or optimization.cache_size_gb == 0:
        return None
    cache_gb, free_mb = optimization.cache_size_gb, memory.swap_threshold_mb
    return WarmConfig(
        strategy=memory.model_caching_strategy,
        budget_bytes=None if cache_gb is None else round(cache_gb * 1024 * MIB),
        keep_free_bytes=(USUAL_FREE_MB if free_mb is None else free_mb) * MIB,
        read_bytes_per_s=optimization.cache_read_mb_per_second * MIB,
        horizon_s=max(USUAL_WARM_HORIZON_S, optimization.prefetch_window_minutes * 60),
    )


def schedules(document: Document) -> tuple[WarmUpSchedule, ...]:
    """When which models shall be resident."""
    return tuple(
        WarmUpSchedule(
            cron=schedule.cron,
            zone=schedule.timezone,
            models=schedule.models,
            keep_s=None if schedule.keep_minutes is None else schedule.keep_minutes * 60,
            until=schedule.until,
            yields=schedule.yield_,
        )
        for schedule in document.schedules
    )


def predictor_config(document: Document) -> PredictorConfig:
    """What the predictor is told."""
    predictor = document.predictor
    return PredictorConfig(
        publish_s=predictor.publish_seconds,
        expires_s=predictor.expires_seconds,
        max_models=predictor.max_models,
        lease_s=predictor.lease_seconds,
        time_zone=predictor.time_zone,
    )


def profile_of(name: str, model: Model) -> ModelProfile:
    """What an entry of ``models``, or a LocalAI model file, declares."""
    profile = model.scheduling_profile
    footprint_mb, latency_ms = profile.memory_footprint_mb, profile.max_acceptable_latency_ms
    word = profile.priority_class
    return ModelProfile(
        model=ModelId(name),
        footprint_bytes=None if footprint_mb is None else footprint_mb * MIB,
        target_s=None if latency_ms is None else latency_ms / 1000,
        priority=None if word is None else priority_of(word),
        preload=model.preload,
        preferred_backend=profile.preferred_backend,
        pinned=model.pinned,
        slots=model.slots,
        warm_up=WarmUp(model.warm_up),
    )
