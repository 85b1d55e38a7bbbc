"""The control API's process: ``python -m api.control``. Wires adapters to the app, nothing else."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial

import redis.asyncio
import structlog

from adapters.clock import ScaledClock
from adapters.config_files import ConfigReload
from adapters.file_stores import open_file_store
from adapters.folder_format import settle_folder
from adapters.log_setup import configure_logging
from adapters.process_limits import harden
from adapters.process_signals import on_hang_up
from adapters.redis_batches import RedisBatchStore
from adapters.redis_decisions import RedisDecisionJournal
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_format import (
    connect_blocking_settled,
    connect_settled,
    settle_at_start,
)
from adapters.redis_insights import RedisInsightStore
from adapters.redis_job_results import RedisJobResults
from adapters.redis_mailbox import to_controller
from adapters.redis_predictors import RedisPredictorRoster
from adapters.redis_profiles import RedisProfileStore
from adapters.redis_scaling import RedisScalingStore
from adapters.redis_stores import RedisControlStore, RedisSnapshotStore
from adapters.rq_queue import RqJobQueue
from adapters.settings import Settings, load_settings
from adapters.settings_changes import Changes, changes_for
from adapters.settings_listing import entries
from adapters.webhooks import check_webhook
from api.control.app import create_app
from api.control.ports import ControlPorts
from api.control.server import ControlServer, bind
from contracts.errors import Invalid
from workers.queues import BACKGROUND, QUEUES
from workers.schedule import chores_of, next_runs

_log = structlog.get_logger("headstart.control")

BAD_CONFIGURATION = 2

WORKER_GONE_AFTER_S = 90.0
"""A worker beats several times a minute, also while its job runs."""

APPLIED = (
    ("gateway", "keys"),
    ("gateway", "named_keys"),
    ("workers", "gateway_key"),
    ("logging",),
)
"""Settings that a running control API takes over: who may come in."""

ON_RESTART = (
    ("control",),
    ("workers", "files_url"),
    ("workers", "files_max_gb"),
    ("workers", "webhooks_to_private"),
    ("redis",),
    ("data_dir",),
)
"""Settings that it reads at its start alone."""


async def serve(settings: Settings, redis_url: str) -> None:
    """Serve until SIGTERM or SIGINT. Raises Invalid when the port cannot be had."""
    config = settings.control_config()
    listener = bind(config.host, config.port)
    jobs_url = settings.jobs_url or redis_url
    client, client_of_jobs = connect_settled(redis_url), connect_settled(jobs_url)
    blocking = connect_blocking_settled(jobs_url)
    clock = ScaledClock.from_environment(os.environ)
    in_force = [settings]
    jobs = RqJobQueue(blocking, QUEUES)
    app = create_app(
        config,
        _ports(settings, client, client_of_jobs, jobs),
        clock,
        gateway=settings.gateway_config(),
        max_workers=settings.workers_config().max_processes,
        default_target_s=settings.controller_config().planner.default_target_s,
        settings_in_force=lambda: [
            (entry.key, entry.value, entry.origin) for entry in entries(in_force[0])
        ],
    )
    server = ControlServer(app, on_stop=app.state.room.feed.close)

    def apply(before: Settings, after: Settings) -> Changes:
        in_force[0] = after
        app.state.room.users.reload(after.gateway_config())
        configure_logging("control", json=after.log_json, level=after.log_level)
        return changes_for(before, after, applied=APPLIED, on_restart=ON_RESTART)

    configuration = ConfigReload(settings, os.environ, apply, clock)
    on_hang_up(stop=server.end, reload=configuration.reload)
    watching = asyncio.create_task(configuration.watch())
    host, port = listener.getsockname()[:2]
    _log.info("control.listening", host=host, port=port, writes=_writes(config.admin_key))
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        listener.close()
        blocking.close()
        await client.aclose()
        await client_of_jobs.aclose()
    _log.info("control.stopped")


def _ports(
    settings: Settings,
    client: redis.asyncio.Redis,
    client_of_jobs: redis.asyncio.Redis,
    jobs: RqJobQueue,
) -> ControlPorts:
    workers = settings.workers_config()
    return ControlPorts(
        events=RedisEventLog(client),
        forecasts=RedisForecastStore(client),
        decisions=RedisDecisionJournal(client),
        settings=RedisControlStore(client),
        snapshots=RedisSnapshotStore(client),
        profiles=RedisProfileStore(client),
        controller=to_controller(client),
        jobs=jobs,
        workers=partial(_workers_alive, jobs),
        results=RedisJobResults(client_of_jobs, ttl_s=QUEUES[BACKGROUND].result_ttl_s),
        check_webhook=partial(check_webhook, allow_private=workers.webhooks_to_private),
        files=open_file_store(workers, settings.data_dir),
        batches=RedisBatchStore(client),
        scaling=RedisScalingStore(client),
        insights=RedisInsightStore(client),
        predictors=RedisPredictorRoster(client),
        chores=partial(next_runs, chores_of(workers)),
    )


def _workers_alive(jobs: RqJobQueue, queue: str) -> int:
    return sum(beat.age_s <= WORKER_GONE_AFTER_S for beat in jobs.workers(queue))


def _writes(admin_key: str | None) -> str:
    return "from this machine" if admin_key is None else "with the admin key"


def _redis_url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise Invalid("no Redis: set REDIS_URL, or start everything with `headstart up`")
    return settings.redis_url


def main() -> int:
    """Start; 2 for a configuration or a port that cannot be used, with one line that says why."""
    harden()
    try:
        settings = load_settings(os.environ)
        configure_logging("control", json=settings.log_json, level=settings.log_level)
        redis_url = _redis_url(settings)
        settle_at_start(redis_url, settings.jobs_url or redis_url)
        settle_folder(settings.data_dir)
        asyncio.run(serve(settings, redis_url))
    except Invalid as error:
        print(f"headstart control: {error}", file=sys.stderr)  # noqa: T201 - for people
        return BAD_CONFIGURATION
    return 0


if __name__ == "__main__":
    sys.exit(main())
