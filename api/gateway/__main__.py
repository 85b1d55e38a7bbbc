"""The gateway process: ``python -m api.gateway``. Wires adapters to the service, nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

import prometheus_client
import structlog

from adapters.clock import ScaledClock
from adapters.config_files import ConfigReload
from adapters.localai_fleet import LocalAIFleet
from adapters.log_setup import configure_logging
from adapters.process_limits import harden
from adapters.process_signals import on_signals
from adapters.redis_events import RedisEventLog
from adapters.redis_format import connect_settled, settle_at_start
from adapters.redis_load_lock import RedisLoadLock
from adapters.redis_mailbox import to_controller, to_gateways
from adapters.redis_stores import RedisSnapshotStore
from adapters.settings import Settings, load_settings
from adapters.settings_changes import Changes, changes_for
from adapters.upstreams import open_upstream
from api.gateway.connections import EdgeLimits
from api.gateway.open_files import connections_within, raise_limit
from api.gateway.server import GatewayServer, bind
from api.gateway.service import GatewayPorts, GatewayService
from contracts.errors import Invalid
from contracts.ids import GatewayId
from contracts.ports import Clock

_log = structlog.get_logger("gateway")

BAD_CONFIGURATION = 2
CUT_SHORT = 1

APPLIED = (
    ("gateway",),
    ("queue_config",),
    ("load_balancing",),
    ("resources",),
    ("models", "*"),
    ("workers", "gateway_key"),
    ("logging",),
)
"""Settings that a running gateway takes over, for the requests that come from then on."""

ON_RESTART = (
    ("gateway", "host"),
    ("gateway", "port"),
    ("redis",),
    ("data_dir",),
)
"""Settings that it reads at its start alone."""

LOCALAI = (("localai",),)
"""Taken over where the LocalAIs stay the same, if at other addresses or with other keys."""


async def serve(settings: Settings, listening: socket.socket) -> int:
    """Run until SIGTERM or SIGINT, then let running requests end. The exit code.

    A second signal ends them. SIGHUP, or a change of the configuration's files, takes a new
    configuration over.
    """
    config = settings.gateway_config()
    clock = ScaledClock.from_environment(os.environ)
    gateway = GatewayId(f"gateway-{os.getpid()}-{secrets.token_hex(4)}")
    async with AsyncExitStack() as stack:
        fleet = LocalAIFleet(config, clock)
        stack.push_async_callback(fleet.close)
        ports = _open_ports(settings, fleet, clock, stack)
        service = GatewayService(gateway, config, ports)
        server = GatewayServer(
            service.app,
            grace_real_s=config.shutdown_grace_s / clock.scale,
            limits=EdgeLimits(
                max_connections=connections_within(raise_limit(), config.max_connections)
            ),
            on_refusal=service.refused_at_edge,
        )

        def stop() -> None:
            if server.should_exit:
                service.leave_now()
            else:
                service.leave()
            server.stop(service.shutdown_grace_s / clock.scale)

        def apply(before: Settings, after: Settings) -> Changes:
            config = after.gateway_config()
            is_same = fleet.readdress(config)
            service.reload(config)
            configure_logging("gateway", json=after.log_json, level=after.log_level)
            return changes_for(
                before,
                after,
                applied=[*APPLIED, *(LOCALAI if is_same else ())],
                on_restart=[*ON_RESTART, *(() if is_same else LOCALAI)],
            )

        configuration = ConfigReload(settings, os.environ, apply, clock)
        on_signals(stop=stop, reload=configuration.reload)
        watching = asyncio.create_task(configuration.watch())
        stack.callback(watching.cancel)
        await service.start()
        # What lives for ever need not be looked at again for each request's garbage.
        gc.collect()
        gc.freeze()
        host, port = listening.getsockname()[:2]
        _log.info(
            "gateway_started",
            gateway=gateway,
            host=host,
            port=port,
            localai=[node.url for node in config.nodes],
            redis=settings.redis_url is not None,
        )
        try:
            await server.serve(sockets=[listening])
        finally:
            _log.info("gateway_stopping", at_once=server.force_exit)
            await service.stop()
    return CUT_SHORT if server.force_exit else 0


def _open_ports(
    settings: Settings, fleet: LocalAIFleet, clock: Clock, stack: AsyncExitStack
) -> GatewayPorts:
    """The ways to the outside, as configured; ``stack`` closes those to Redis."""
    control_url = settings.gateway_config().control_url
    ports = GatewayPorts(
        clock=clock,
        upstreams=fleet.upstreams,
        servers=fleet.servers,
        doors=fleet,
        control=None if control_url is None else open_upstream(control_url),
    )
    if settings.redis_url is None:
        return ports
    client = connect_settled(settings.redis_url)
    stack.push_async_callback(client.aclose)
    return replace(
        ports,
        events=RedisEventLog(client),
        to_controller=to_controller(client),
        to_gateways=to_gateways(client),
        snapshots=RedisSnapshotStore(client),
        load_lock=RedisLoadLock(client),
    )


def main() -> int:
    """Start; 2 for a configuration that cannot work, with one line that says why.

    0 after a stop in which running requests could end, 1 after one in which a second signal
    cut them.
    """
    harden()
    configure_logging("gateway")
    # Twice the series for what nobody looks at.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # it has no types
    try:
        settings = load_settings(os.environ)
        configure_logging("gateway", json=settings.log_json, level=settings.log_level)
        if settings.redis_url is not None:
            settle_at_start(settings.redis_url)
        listening = bind(settings.gateway_config())
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(serve(settings, listening))
    except Invalid as error:
        print(f"headstart gateway: {error}", file=sys.stderr)  # noqa: T201 - for people
        return BAD_CONFIGURATION


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop, where it is there."""
    if sys.platform == "win32":
        return None
    import uvloop

    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


if __name__ == "__main__":
    sys.exit(main())
