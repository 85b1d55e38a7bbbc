"""Turns changes of the board into events for the feed; only what changed is sent."""

from __future__ import annotations

from collections.abc import Iterable

from api.control import views
from api.control.board import Board
from api.control.feed import Draft, EventFeed
from api.control.schemas import Schema
from contracts.ids import ModelId
from contracts.plan import Decision
from contracts.ports import Clock, Entry

FORMAT = 1
"""Version of the events' shapes, so that an old page reloads itself."""


class LiveView:
    """What listeners were told last, and the events that bring them up to date.

    ``opening`` gives a newcomer everything; ``refresh`` tells all listeners what is new.
    """

    def __init__(self, board: Board, feed: EventFeed, clock: Clock, *, stale_after_s: float):
        self._board = board
        self._feed = feed
        self._clock = clock
        self._stale_after_s = stale_after_s
        self._models: dict[str, object] = {}
        self._told: dict[str, object] = {}
        self._new_forecasts: set[ModelId] = set()

    def opening(self) -> list[Draft]:
        """All that a newcomer needs, decisions apart: those are paged over /v1/decisions."""
        models = self._model_data()
        return [
            ("hello", {"format": FORMAT, "now_s": self._clock.now_s(), "scale": self._clock.scale}),
            ("summary", self._summary_data()),
            ("nodes", self._node_data()),
            ("queues", self._queue_data()),
            ("models", {"full": True, "changed": list(models.values()), "removed": []}),
            ("forecasts", {"full": True, "changed": self._forecast_data(self._board.forecasts)}),
        ]

    def refresh(self) -> None:
        """Tell all listeners what has changed since the last call."""
        if self._feed.listeners == 0:
            self._new_forecasts.clear()
            return
        models = self._model_data()
        changed = [data for name, data in models.items() if self._models.get(name) != data]
        removed = [name for name in self._models if name not in models]
        self._models = models
        if changed or removed:
            self._feed.publish("models", {"full": False, "changed": changed, "removed": removed})
        self._tell("nodes", self._node_data())
        self._tell("queues", self._queue_data())
        self._feed.publish("summary", self._summary_data())
        if self._new_forecasts:
            changed_forecasts = self._forecast_data(sorted(self._new_forecasts))
            self._feed.publish("forecasts", {"full": False, "changed": changed_forecasts})
            self._new_forecasts.clear()

    def forecasts_changed(self, models: Iterable[ModelId]) -> None:
        """These are told at the next refresh."""
        self._new_forecasts.update(models)

    def decided(self, entries: Iterable[Entry[Decision]]) -> None:
        """Tell at once, and keep for those who are away for a moment."""
        for entry in entries:
            view = views.decision_view(entry.value, entry.entry_id)
            self._feed.publish("decision", _plain(view), keep=True)

    def tell_fault(self) -> None:
        """The world cannot be read: the summary says so."""
        self._feed.publish("summary", self._summary_data())

    def _tell(self, kind: str, data: object) -> None:
        if self._told.get(kind) != data:
            self._told[kind] = data
            self._feed.publish(kind, data)

    def _model_data(self) -> dict[str, object]:
        if self._board.world is None:
            return {}
        now_s = self._clock.now_s()
        return {
            name: _plain(views.model_view(self._board, self._board.world.models[name], now_s))
            for name in sorted(self._board.world.models)
        }

    def _node_data(self) -> object:
        world = self._board.world
        if world is None:
            return []
        return [
            _plain(views.node_view(self._board, world.nodes[name])) for name in sorted(world.nodes)
        ]

    def _queue_data(self) -> object:
        world = self._board.world
        return [_plain(views.queue_view(queue)) for queue in world.queues] if world else []

    def _summary_data(self) -> object:
        return _plain(
            views.summary_view(
                self._board,
                self._clock.now_s(),
                time_scale=self._clock.scale,
                stale_after_s=self._stale_after_s,
            )
        )

    def _forecast_data(self, models: Iterable[ModelId]) -> list[object]:
        now_s = self._clock.now_s()
        forecasts = self._board.forecasts
        return [_plain(views.forecast_view(forecasts[m], now_s)) for m in models if m in forecasts]


def _plain(view: Schema) -> object:
    return view.model_dump(mode="json", by_alias=True)
