"""What came of orders, as events: applied, failed, or given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from contracts.events import ActionApplied, ActionFailed, AnyEvent, ModelLoadFailed
from contracts.ids import ModelId
from contracts.plan import LoadModel
from controller.fold import LOAD_KIND
from controller.stamps import Stamp

_log = structlog.get_logger("headstart.controller")


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Tells of each end once, by event and by one line."""

    emit: Callable[[AnyEvent], None]
    stamp: Callable[[], Stamp]

    def load_failed(
        self, action: LoadModel, error: str, retry_after_s: float | None, free_bytes: int | None
    ) -> None:
        """A load that LocalAI began has failed, with so much free before it."""
        self.emit(
            ModelLoadFailed(
                **self.stamp(),
                model=action.model,
                node=action.node,
                cause=action.cause,
                error=error,
                retry_after_s=retry_after_s,
                free_bytes=free_bytes,
            )
        )
        _log.warning("model_load_failed", model=action.model, node=action.node, error=error)

    def load_given_up(self, action: LoadModel, why: str) -> None:
        """A load was not even begun."""
        self.failed(action.action_id, LOAD_KIND, action.model, why)

    def applied(self, action_id: str, kind: str, model: ModelId, took_s: float) -> None:
        """It is as was wanted."""
        self.emit(
            ActionApplied(
                **self.stamp(), action_id=action_id, kind=kind, subject=model, took_s=took_s
            )
        )

    def failed(
        self, action_id: str, kind: str, model: ModelId, error: str, *, is_refused: bool = False
    ) -> None:
        """It is not, and is planned anew."""
        self.emit(
            ActionFailed(
                **self.stamp(),
                action_id=action_id,
                kind=kind,
                subject=model,
                error=error,
                is_refused=is_refused,
            )
        )
        _log.info("action_given_up", kind=kind, model=model, why=error)
