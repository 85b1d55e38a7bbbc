"""``python -m workers --queue NAME``: one process serves one queue; ``all`` starts one for each."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import FrameType

import redis
import structlog

from adapters.champion_files import DiskChampionStore
from adapters.clock import ScaledClock
from adapters.file_store import RESULTS_FOLDER, DiskResultLog
from adapters.file_stores import open_file_store
from adapters.folder_format import settle_folder
from adapters.gateway_client import HttpGateway
from adapters.log_setup import configure_logging
from adapters.process_limits import harden
from adapters.process_signals import on_hang_up_in_thread
from adapters.redis_batches import RedisBatchStore
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_format import (
    connect_blocking_settled,
    connect_settled,
    settle_at_start,
)
from adapters.redis_insights import RedisInsightStore
from adapters.redis_job_results import RedisJobResults
from adapters.redis_profiles import RedisProfileStore
from adapters.redis_retention import RedisTrimmable
from adapters.redis_stores import RedisSnapshotStore
from adapters.rq_queue import RqJobQueue
from adapters.settings import Settings, load_settings
from adapters.webhooks import HttpNotifier
from contracts.errors import HeadstartError, Invalid, Transient
from contracts.ports import Clock, JobQueue
from contracts.redis_keys import DECISIONS, DECISIONS_INDEX, EVENTS
from predictor.library_versions import library_versions
from workers.batches.sweep import Sweep
from workers.children import die_with_parent, supervise
from workers.chores import Chores
from workers.jobs import JobRunner, OpenTools
from workers.queues import BACKGROUND, BATCH, MAINTENANCE, QUEUES, REALTIME_FALLBACK
from workers.rq_log import quieten
from workers.scaling import Scales
from workers.schedule import chores_of
from workers.tools import Tools
from workers.worker import LEAVE_S, QueueWorker, after, leave

_ALL = "all"
_OUTAGE_ATTEMPTS = 240
"""Half-second tries: a job that runs while Redis is away for two minutes runs once."""
_PAUSE_S = 1.0
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not listened on

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; 0 after SIGTERM or SIGINT, 2 for a bad configuration."""
    options = _parser().parse_args(arguments)
    harden()
    try:
        settings = load_settings(os.environ)
        clock = ScaledClock.from_environment(os.environ)
        chores = chores_of(settings.workers_config())
        redis_url = _redis_url(settings)
        jobs_url = settings.jobs_url or redis_url
        settle_at_start(redis_url, jobs_url)
        settle_folder(settings.data_dir)
        client = connect_blocking_settled(jobs_url, attempts=_OUTAGE_ATTEMPTS)
    except Invalid as error:
        sys.stderr.write(f"workers: {error}\n")
        return 2
    configure_logging(f"workers.{options.queue}", json=settings.log_json, level=settings.log_level)
    quieten()
    # The supervisor gives its children five seconds, and a worker leaves before they are over.
    stop = _stop_on_signals(leave_s=None if options.queue == _ALL else LEAVE_S)
    if options.parent is not None:
        die_with_parent(signal.SIGTERM, options.parent)
    if options.queue == _ALL:
        supervise(
            {name: _command(name, options.gateway_url) for name in QUEUES},
            stop,
            wanted=_scaler(settings, jobs_url),
        )
        return 0
    if options.queue == MAINTENANCE:
        _stand_back()
    probe = connect_blocking_settled(jobs_url)
    runner = JobRunner(
        tools_opener(
            settings,
            redis_url,
            clock=clock,
            gateway_url=options.gateway_url or _own_gateway(settings),
            result_ttl_s=QUEUES[options.queue].result_ttl_s,
        ),
        time_scale=clock.scale,
    )
    jobs = RqJobQueue(probe, QUEUES)
    on_maintenance = {
        MAINTENANCE: Chores(jobs, clock, chores).queue_due,
        BATCH: lambda: sweep_batches(jobs, redis_url),
    }.get(options.queue, _nothing)
    _serve(
        lambda: QueueWorker(
            QUEUES[options.queue],
            client,
            runner,
            on_maintenance=on_maintenance,
            is_told_to_stop=stop.is_set,
        ),
        probe,
        stop,
    )
    return 0


def tools_opener(
    settings: Settings, redis_url: str, *, clock: Clock, gateway_url: str, result_ttl_s: int
) -> OpenTools:
    """What a job's process calls to get its tools: adapters over connections of its own."""

    @asynccontextmanager
    async def open_tools() -> AsyncIterator[Tools]:
        jobs_url = settings.jobs_url or redis_url
        client, client_of_jobs = connect_settled(redis_url), connect_settled(jobs_url)
        blocking = connect_blocking_settled(jobs_url)
        config = settings.workers_config()
        gateway = HttpGateway(gateway_url, key=config.gateway_key)
        try:
            yield Tools(
                clock=clock,
                results=RedisJobResults(client_of_jobs, ttl_s=result_ttl_s),
                jobs=RqJobQueue(blocking, QUEUES),
                gateway=gateway,
                snapshots=RedisSnapshotStore(client),
                forecasts=RedisForecastStore(client),
                logs={
                    "events": RedisTrimmable(client, EVENTS),
                    "decisions": RedisTrimmable(client, DECISIONS, index_key=DECISIONS_INDEX),
                },
                notifier=HttpNotifier(allow_private=config.webhooks_to_private),
                webhook_secret=config.webhook_secret,
                batches=RedisBatchStore(client),
                files=open_file_store(config, settings.data_dir),
                events=RedisEventLog(client),
                insights=RedisInsightStore(client),
                champions=DiskChampionStore(settings.data_dir),
                profiles=RedisProfileStore(client),
                versions=library_versions(),
                predictor=settings.predictor_config(),
                line_results=DiskResultLog(settings.data_dir / RESULTS_FOLDER),
            )
        finally:
            await gateway.close()
            await client.aclose()
            await client_of_jobs.aclose()
            blocking.close()

    return open_tools


def sweep_batches(jobs: JobQueue, redis_url: str) -> None:
    """Queue a job for each batch that has none; an outage is met again at the next sweep."""

    async def sweep() -> None:
        client = connect_settled(redis_url)
        try:
            await Sweep(RedisBatchStore(client), jobs).queue_due()
        except HeadstartError as error:
            log.warning("batches_not_swept", error=str(error))
        finally:
            await client.aclose()

    asyncio.run(sweep())


def _serve(
    make_worker: Callable[[], QueueWorker], probe: redis.Redis, stop: threading.Event
) -> None:
    """Work until stopped: waits for Redis however long, and starts over after an outage."""
    while _reachable(probe, stop):
        _warn_of_eviction(probe)
        worker = None
        try:
            worker = make_worker()
            log.info("worker_started", name=worker.name)
            worker.serve()
        except redis.RedisError as error:
            log.warning("worker_interrupted", error=str(error))
        if worker is not None:
            worker.abandon()
            if worker.stopping:
                log.info("worker_stopped", name=worker.name)
                return
        _stop_on_signals(stop, leave_s=LEAVE_S)
        stop.wait(_PAUSE_S)


def _reachable(probe: redis.Redis, stop: threading.Event) -> bool:
    """True once Redis answers, False when stopped before."""
    waiting = False
    while not stop.is_set():
        try:
            probe.ping()
        except redis.RedisError as error:
            if not waiting:
                log.warning("redis_unreachable", error=str(error))
            waiting = True
            stop.wait(_PAUSE_S)
        else:
            if waiting:
                log.info("redis_reachable")
            return True
    return False


def _warn_of_eviction(probe: redis.Redis) -> None:
    """A server that is set up as a cache throws jobs away when it is full."""
    with suppress(redis.RedisError):
        policy = probe.config_get("maxmemory-policy").get("maxmemory-policy")
        if policy not in (None, "noeviction", b"noeviction"):
            log.warning(
                "redis_evicts", policy=str(policy), remedy="set maxmemory-policy noeviction"
            )


def _stop_on_signals(
    stop: threading.Event | None = None, *, leave_s: float | None
) -> threading.Event:
    """Set ``stop`` on SIGTERM and SIGINT; whatever is under way then has ``leave_s`` to end.

    A call to Redis may be in the middle of its two minutes of retries, and nothing breaks it off.
    """
    event = threading.Event() if stop is None else stop

    def told(_signum: int, _frame: FrameType | None) -> None:
        if leave_s is not None and not event.is_set():
            after(leave_s, leave)
        event.set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, told)
    on_hang_up_in_thread(event.set)
    return event


def _redis_url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise Invalid("no Redis is configured: set HEADSTART_REDIS_URL, or use `headstart up`")
    return settings.redis_url


def _own_gateway(settings: Settings) -> str:
    """The gateway of this machine, where it listens on one address alone or on all."""
    config = settings.gateway_config()
    host = "127.0.0.1" if config.host in _WILDCARDS else config.host
    return f"http://[{host}]:{config.port}" if ":" in host else f"http://{host}:{config.port}"


def _command(queue: str, gateway_url: str | None) -> list[str]:
    command = [sys.executable, "-m", "workers", "--queue", queue, "--parent", str(os.getpid())]
    return command + (["--gateway-url", gateway_url] if gateway_url else [])


def _scaler(settings: Settings, jobs_url: str) -> Callable[[], Mapping[str, int]]:
    """What tells how many processes each queue is to have."""
    most = settings.workers_config().max_processes
    scales = Scales(dict.fromkeys((REALTIME_FALLBACK, BATCH, BACKGROUND), most) | {MAINTENANCE: 2})
    jobs = RqJobQueue(connect_blocking_settled(jobs_url), QUEUES)

    def wanted() -> Mapping[str, int]:
        try:
            counts = jobs.counts()
        except Transient:
            counts = None  # the workers themselves tell of the outage
        return scales.wanted(counts, time.monotonic())

    return wanted


def _stand_back() -> None:
    """Maintenance computes for minutes: it takes what others leave of one core."""
    os.nice(10)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _nothing() -> None:
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workers", description=__doc__)
    parser.add_argument("--queue", required=True, choices=(*QUEUES, _ALL), help="what to serve")
    parser.add_argument("--gateway-url", help="default: the gateway on this machine")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
