"""The controller process: ``python -m controller``. Wires adapters to the loop, nothing else."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable

import redis.asyncio
import structlog

from adapters.clock import ScaledClock
from adapters.compose_scaler import ComposeScaler
from adapters.config_files import ConfigReload
from adapters.localai_calls import LocalAICalls
from adapters.localai_discovery import resolver
from adapters.localai_doors import LocalAIDoors
from adapters.localai_replicas import LocalAIReplicas
from adapters.log_setup import configure_logging
from adapters.model_folder import ModelFolders
from adapters.model_profiles import parse_scheduling_profile
from adapters.probes.registry import probe_for
from adapters.probes.threaded import in_thread
from adapters.probes.wiring import local_nodes, options_for
from adapters.process_limits import give_back_large_blocks, harden
from adapters.process_signals import on_signals
from adapters.redis_decisions import RedisDecisionJournal
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_format import connect_settled, settle_at_start
from adapters.redis_lease import RedisLease
from adapters.redis_load_lock import RedisLoadLock
from adapters.redis_mailbox import to_controller, to_gateways
from adapters.redis_profiles import RedisProfileStore
from adapters.redis_scaling import RedisScalingStore
from adapters.redis_stores import RedisControlStore, RedisSnapshotStore
from adapters.settings import Settings, load_settings
from adapters.settings_changes import Changes, changes_for
from adapters.thin_events import ThinEventLog
from contracts.config import ControllerConfig, ModelProfile, NodeConfig, is_same_fleet
from contracts.errors import Invalid
from contracts.ids import ModelId, NodeId
from contracts.ports import Clock
from contracts.scaling import Scaler, ScalerKind, ScalingConfig
from controller.loop import ControlLoop
from controller.policies.registry import policy_named
from controller.ports import DeclaredProfile, Ports
from controller.scaling.autoscaler import Autoscaler, ScalingPorts
from controller.sight import Sight

_log = structlog.get_logger("headstart.controller")

BAD_CONFIGURATION = 2

APPLIED = (
    ("scheduler",),
    ("autoscaling",),
    ("optimization",),
    ("memory",),
    ("models",),
    ("memory_optimization",),
    ("resources",),
    ("schedules",),
    ("workers", "batch_slots"),
    ("resource_monitoring",),
    ("logging",),
)
"""Settings that a running controller takes over."""

ON_RESTART = (
    ("scheduler", "lease_seconds"),
    ("scheduler", "poll_seconds"),
    ("resource_monitoring", "interval_seconds"),
    ("resource_monitoring", "gpu_metrics"),
    ("resource_monitoring", "cpu_metrics"),
    ("resource_monitoring", "probes"),
    ("resource_monitoring", "gpus"),
    ("compose_scaler",),
    ("redis",),
)
"""Settings that it reads at its start alone."""

LOCALAI = (("localai",),)
"""Taken over where the LocalAIs stay the same, if at other addresses or with other keys."""


def declared_by(
    read: Callable[[NodeId, ModelId], Awaitable[str | None]],
) -> DeclaredProfile:
    """Reads ``scheduling_profile`` from model files; a bad one is logged and passed over."""

    async def declared(node: NodeId, model: ModelId) -> ModelProfile | None:
        text = await read(node, model)
        try:
            return None if text is None else parse_scheduling_profile(text, source=f"{model}.yaml")
        except Invalid as error:
            _log.warning("scheduling_profile_ignored", model=model, error=str(error))
            return None

    return declared


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then let another controller lead at once."""
    config = settings.controller_config()
    clock = ScaledClock.from_environment(os.environ)
    client = connect_settled(settings.redis_url or "")
    doors = LocalAIDoors(
        config.nodes, clock, sights_of(config, clock), resolve=resolver(os.environ)
    )
    owner = f"controller-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    ports = _open_ports(settings, doors, clock, client)
    loop = ControlLoop(owner, ports, config)
    replicas = LocalAIReplicas(LocalAICalls(config.nodes[0], clock), clock)
    autoscaler = _autoscaler(config, client, ports, replicas, loop.leads)
    running = asyncio.create_task(loop.run())
    scaling = asyncio.create_task(autoscaler.run())
    running_nodes = config.nodes

    def apply(before: Settings, after: Settings) -> Changes:
        policy_named(after.controller_config().planner.policy)
        config = after.controller_config()
        is_same = is_same_fleet(running_nodes, config.nodes)
        if is_same:
            doors.readdress(config.nodes)
        loop.reconfigure(config)
        autoscaler.reconfigure(config.scaling.targets)
        configure_logging("controller", json=after.log_json, level=after.log_level)
        return changes_for(
            before,
            after,
            applied=[*APPLIED, *(LOCALAI if is_same else ())],
            on_restart=[*ON_RESTART, *(() if is_same else LOCALAI)],
        )

    configuration = ConfigReload(settings, os.environ, apply, clock)
    on_signals(stop=running.cancel, reload=configuration.reload)
    watching = asyncio.create_task(configuration.watch())
    _log.info("controller_started", owner=owner, policy=config.planner.policy)
    try:
        await running
    except asyncio.CancelledError:
        _log.info("controller_stopping")
    finally:
        watching.cancel()
        scaling.cancel()
        await loop.release()
        await replicas.close()
        await doors.aclose()
        await client.aclose()


def _open_ports(
    settings: Settings,
    doors: LocalAIDoors[Sight],
    clock: Clock,
    client: redis.asyncio.Redis,
) -> Ports:
    """The ways to the outside, as configured."""
    return Ports(
        clock=clock,
        events=ThinEventLog(RedisEventLog(client)),
        to_controller=to_controller(client),
        to_gateways=to_gateways(client),
        forecasts=RedisForecastStore(client),
        journal=RedisDecisionJournal(client),
        controls=RedisControlStore(client),
        snapshots=RedisSnapshotStore(client),
        profiles=RedisProfileStore(client),
        lease=RedisLease(client),
        load_lock=RedisLoadLock(client),
        servers=doors.servers,
        declared=declared_by(doors.read_profile),
        sights=doors.sights,
        model_files=doors.files,
        weights=doors.weights,
        weights_found=ModelFolders(settings.model_folders),
        doors=doors if doors.are_moving else None,
    )


def _autoscaler(
    config: ControllerConfig,
    client: redis.asyncio.Redis,
    ports: Ports,
    replicas: LocalAIReplicas,
    leads: Callable[[], bool],
) -> Autoscaler:
    """What says how many replicas there shall be, while this controller leads."""
    return Autoscaler(
        config.scaling.targets,
        ScalingPorts(
            clock=ports.clock,
            snapshots=ports.snapshots,
            forecasts=ports.forecasts,
            journal=ports.journal,
            store=RedisScalingStore(client),
            scalers=scalers_of(config.scaling, replicas),
        ),
        leads=leads,
    )


def sights_of(config: ControllerConfig, clock: Clock) -> Callable[[NodeConfig], Sight]:
    """Who sees a node's machine: our own probes where it is this one, else LocalAI."""
    local = local_nodes(config.nodes, os.environ)
    monitoring = config.monitoring

    def sight_of(node: NodeConfig) -> Sight:
        look = None
        if node.node in local:
            options = options_for(monitoring, config.nodes, node, os.environ)
            probe = probe_for(options, monitoring.probes)
            look = in_thread(probe)
            _log.info("probes_used", node=node.node, probes=list(probe.names))
        return Sight(
            node.node,
            clock=clock,
            look=look,
            accelerator=node.accelerator,
            interval_s=monitoring.interval_s,
        )

    return sight_of


def scalers_of(config: ScalingConfig, localai: Scaler) -> dict[ScalerKind, Scaler]:
    """Who carries orders out, of those that are set up."""
    scalers: dict[ScalerKind, Scaler] = {ScalerKind.LOCALAI: localai}
    if config.compose_url is not None:
        scalers[ScalerKind.COMPOSE] = ComposeScaler(config.compose_url, config.compose_token)
    wanting = [t.name for t in config.targets if t.kind is ScalerKind.COMPOSE]
    if wanting and config.compose_url is None:
        raise Invalid(f"autoscaling.{wanting[0]}.scaler: compose needs compose_scaler.url")
    return scalers


def _checked(settings: Settings) -> Settings:
    policy_named(settings.controller_config().planner.policy)
    if settings.redis_url is None:
        raise Invalid("no Redis: set REDIS_URL, or start everything with `headstart up`")
    return settings


def main() -> int:
    """Start; 2 for a configuration that cannot work, with one line that says why."""
    harden()
    give_back_large_blocks()
    configure_logging("controller")
    try:
        settings = _checked(load_settings(os.environ))
        configure_logging("controller", json=settings.log_json, level=settings.log_level)
        settle_at_start(settings.redis_url or "")
        asyncio.run(serve(settings))
    except Invalid as error:
        print(f"headstart controller: {error}", file=sys.stderr)  # noqa: T201 - for people
        return BAD_CONFIGURATION
    return 0


if __name__ == "__main__":
    sys.exit(main())
