"""What every route works with: the configuration, the ports, and the board."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from api.control.access import Door
from api.control.board import STALE_AFTER_S, Board
from api.control.errors import ApiError, not_found, store_away
from api.control.feed import EventFeed
from api.control.followers import CALL_LIMIT_S, Followers
from api.control.live import LiveView
from api.control.metrics import ControlMetrics
from api.control.nearest import nearest_names
from api.control.ports import ControlPorts
from api.control.users import User, Users
from contracts.config import ControlConfig
from contracts.errors import HeadstartError
from contracts.ids import ModelId
from contracts.ports import Clock, JobQueue
from contracts.world import WorldSnapshot

T = TypeVar("T")

SettingsInForce = Callable[[], Iterable[tuple[str, object, str]]]
"""Each key with its value (secrets hidden) and its origin."""

_MAX_NAME = 512


class ControlRoom:
    """One control service: built once by ``create_app``, found by routes on ``app.state``."""

    def __init__(
        self,
        config: ControlConfig,
        ports: ControlPorts,
        clock: Clock,
        *,
        users: Users,
        door: Door,
        default_target_s: float,
        settings: SettingsInForce = tuple,
        max_workers: int = 1,
    ) -> None:
        self.config = config
        self.ports = ports
        self.clock = clock
        self.users = users
        self.door = door
        # With fast time a snapshot may be many of its seconds old after one real one.
        self.stale_after_s = max(STALE_AFTER_S, 5.0 * clock.scale)
        self.board = Board(default_target_s=default_target_s)
        self.settings = settings
        self.max_workers = max_workers
        self.source = f"control-{secrets.token_hex(4)}"
        self._events_made = itertools.count(1)
        self.feed = EventFeed(boot=secrets.token_hex(4))
        self.metrics = ControlMetrics(
            self.board,
            self.feed,
            ports.events,
            clock,
            max_workers=max_workers,
            forgotten_guessers=lambda: door.forgotten_guessers,
        )
        self.live = LiveView(self.board, self.feed, clock, stale_after_s=self.stale_after_s)
        self.followers = Followers(ports, self.board, self.live, clock)

    async def open(self) -> None:
        """Look once, so that the first caller is not told that nothing is known; then follow."""
        try:
            await self.ask(self.followers.read_world())
        except (HeadstartError, ApiError) as error:
            self.board.store_fault = str(error)
        self.followers.start()

    async def close(self) -> None:
        """End the streams and the tasks."""
        self.feed.close()
        await self.followers.stop()

    def next_event_id(self) -> str:
        """Of an event that this process writes."""
        return f"{self.source}-{next(self._events_made)}"

    async def ask(self, answer: Awaitable[T]) -> T:
        """Wait for the store, but not for ever. Raises ApiError after ``CALL_LIMIT_S``."""
        try:
            async with self.clock.timeout(CALL_LIMIT_S * self.clock.scale):
                return await answer
        except TimeoutError:
            raise store_away() from None

    async def ask_jobs(self, question: Callable[[JobQueue], T]) -> T:
        """The job queue's answer. Raises ApiError where there is no queue, or none in time."""
        jobs = self.ports.jobs
        if jobs is None:
            raise ApiError(
                503, "not_configured", "no job queue is set up here", code="no_job_queue"
            )
        # The port is synchronous; a thread keeps a slow store from holding up everybody else.
        return await self.ask(asyncio.to_thread(question, jobs))

    def stale_reason(self) -> str | None:
        """Why the world that is known may not be so any more."""
        return self.board.stale_reason(self.clock.now_s(), stale_after_s=self.stale_after_s)

    def world(self) -> tuple[WorldSnapshot, bool]:
        """The newest world and whether it is stale. Raises ApiError (503) if there is none."""
        world = self.board.world
        if world is not None:
            return world, self.stale_reason() is not None
        if self.board.store_fault is not None:
            raise store_away()
        raise ApiError(
            503,
            "not_ready",
            "no controller has published a snapshot yet; is it running?",
            code="no_snapshot",
            retry_after_s=1.0,
        )

    def model(self, name: str) -> ModelId:
        """The model of that name or alias. Raises ApiError (404) that names the nearest known."""
        found = self.board.find_model(name) if len(name) <= _MAX_NAME else None
        if found is not None:
            return found
        known = self.board.known_models()
        if not known and self.board.store_fault is not None:
            raise store_away()
        raise unknown_model(name, [*known, *self.board.aliases])

    def model_to_set(self, name: str) -> ModelId:
        """As ``model``, but while nobody has told of any model, every name is taken."""
        if not self.board.known_models() and 0 < len(name) <= _MAX_NAME:
            return ModelId(name)
        return self.model(name)


def unknown_model(name: str, known: list[str]) -> ApiError:
    """404 with what was probably meant."""
    shown = name if len(name) <= 80 else name[:79] + "…"
    near = nearest_names(name, known)
    hint = f"; nearest known: {', '.join(near)}" if near else "; see GET /v1/models"
    return not_found(f'no model is called "{shown}"{hint}', code="model_not_found", param="model")


def control_room(request: Request) -> ControlRoom:
    """The room of this app."""
    room: ControlRoom = request.app.state.room
    return room


Room = Annotated[ControlRoom, Depends(control_room)]


def caller(request: Request, room: Room) -> User:
    """Who uses files, batches or jobs. Raises ApiError (401)."""
    return room.users.of(request)


Caller = Annotated[User, Depends(caller)]


def may_read(request: Request, room: Room) -> None:
    """Dependency of every route that tells something."""
    room.door.check_read(request)


def may_write(request: Request, room: Room) -> None:
    """Dependency of every route that changes something."""
    room.door.check_write(request)


READ = [Depends(may_read)]
WRITE = [Depends(may_write)]
