"""The predictor process: ``python -m predictor``. Wires adapters to the service, nothing else."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys

import structlog

from adapters.champion_files import DiskChampionStore
from adapters.clock import ScaledClock
from adapters.engine_snapshots import DiskEngineSnapshots
from adapters.folder_format import settle_folder
from adapters.log_setup import configure_logging
from adapters.process_limits import harden
from adapters.process_signals import on_signals
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_format import connect_settled, settle_at_start
from adapters.redis_history import RedisHistoryStore
from adapters.redis_lease import PREDICTORS_LEASE, RedisLease
from adapters.redis_predictors import RedisPredictorRoster
from adapters.settings import Settings, load_settings
from contracts.errors import Invalid
from predictor.engine import PredictorEngine
from predictor.library_versions import learned_with, library_versions
from predictor.service import PredictorPorts, PredictorService
from predictor.snapshot_watch import ChampionWatch
from predictor.snapshots import SNAPSHOT_S

_log = structlog.get_logger("headstart.predictor")

BAD_CONFIGURATION = 2
_LEAST_LEASE_S = 1.0
"""Real seconds."""


async def serve(settings: Settings, redis_url: str) -> None:
    """Run until SIGTERM or SIGINT, then let another publish at once."""
    config = settings.predictor_config()
    client = connect_settled(redis_url)
    clock = ScaledClock.from_environment(os.environ)
    host = socket.gethostname()
    champions = DiskChampionStore(settings.data_dir)
    service = PredictorService(
        PredictorEngine(config),
        PredictorPorts(
            clock=clock,
            events=RedisEventLog(client),
            forecasts=RedisForecastStore(client),
            history=RedisHistoryStore(client),
            champions=ChampionWatch(champions, library_versions()),
            lease=RedisLease(client, PREDICTORS_LEASE),
            roster=RedisPredictorRoster(client),
            snapshots=DiskEngineSnapshots(settings.data_dir, champions, every_s=SNAPSHOT_S),
        ),
        publish_s=config.publish_s,
        # What it guards against, a process that stalls, does not run faster with the clock.
        lease_s=max(config.lease_s, _LEAST_LEASE_S * clock.scale),
        name=f"predictor-{host}-{os.getpid()}-{secrets.token_hex(3)}",
        host=host,
        made_with=learned_with(config),
    )
    running = asyncio.create_task(service.run())
    on_signals(stop=running.cancel, reload=None)
    _log.info("predictor_started", publish_s=config.publish_s, max_models=config.max_models)
    try:
        await running
    except asyncio.CancelledError:
        _log.info("predictor_stopping")
    finally:
        await service.close()
        await client.aclose()


def main() -> int:
    """Start; 2 for a configuration that cannot work, with one line that says why."""
    harden()
    try:
        settings = load_settings(os.environ)
        configure_logging("predictor", json=settings.log_json, level=settings.log_level)
        redis_url = _redis_url(settings)
        settle_at_start(redis_url)
        settle_folder(settings.data_dir)
        asyncio.run(serve(settings, redis_url))
    except Invalid as error:
        print(f"headstart predictor: {error}", file=sys.stderr)  # noqa: T201 - for people
        return BAD_CONFIGURATION
    return 0


def _redis_url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise Invalid("no Redis: set REDIS_URL, or start everything with `headstart up`")
    return settings.redis_url


if __name__ == "__main__":
    sys.exit(main())
