"""Which predictors there are: the one whose forecasts are published, and those that stand by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Protocol, TypeVar

T = TypeVar("T")

HEARD_WITHIN_S = 15.0
"""Each tells of itself every two seconds; one that has not for so long is not counted."""
FORGOTTEN_AFTER_S = 300.0
MAX_PREDICTORS = 64
"""More are not told apart: what is shown of them stays small."""


class Standing(Enum):
    """What a predictor does at the moment."""

    CATCHING_UP = "catching_up"
    """It learns what it missed, and may not take over yet."""
    STANDBY = "standby"
    """It follows the event log, and publishes nothing."""
    OWNER = "owner"
    """Its forecasts are the published ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorBeat:
    """What one predictor tells of itself.

    Attributes
    ----------
    name, host : str
        The process, and the machine or container that it runs in.
    at_s, since_s : float
        When it told this, and since when it stands so.
    token : int or None
        Of its term as owner.
    place : str
        How far it has read the event log.
    models : int
        Models that it forecasts.
    refused : int
        Writes that were refused since another had taken over.
    start_s : float or None
        How long it took to know what there was to know; None: not yet.
    """

    name: str
    host: str
    standing: Standing
    at_s: float
    since_s: float
    token: int | None = None
    place: str = "0"
    models: int = 0
    refused: int = 0
    start_s: float | None = None


class PredictorRoster(Protocol):
    """Where predictors tell of themselves; bounded by ``MAX_PREDICTORS``."""

    async def beat(self, beat: PredictorBeat) -> None:
        """Tell of oneself; those that were not heard of for long are forgotten."""
        ...

    async def leave(self, name: str) -> None:
        """Be forgotten at once."""
        ...

    async def all(self) -> tuple[PredictorBeat, ...]:
        """Who told of itself, by name, however long ago."""
        ...


class EngineSnapshots(Protocol):
    """The newest of what predictors have learned; one is kept."""

    async def read(self, load: Callable[[BinaryIO], T]) -> T | None:
        """What ``load`` makes of it; None: there is none.

        Raises Invalid when it is not one of ours, Permanent when it cannot be read.
        """
        ...

    async def write(self, dump: Callable[[BinaryIO], None]) -> bool:
        """Take the place of the one before; whether it did: a young one is left as it is.

        ``dump`` is run in one go, so that what it writes does not change meanwhile. Raises
        Permanent.
        """
        ...


def present(beats: Iterable[PredictorBeat], now_s: float) -> tuple[PredictorBeat, ...]:
    """Those that live: the owner first, then by name.

    Of two that think that they own, which is one that stopped and does not know it yet, the one
    with the greater token does.
    """
    living = [beat for beat in beats if now_s - beat.at_s <= HEARD_WITHIN_S]
    owners = [beat for beat in living if beat.standing is Standing.OWNER]
    owner = max(owners, key=lambda beat: beat.token or 0, default=None)
    others = sorted((beat for beat in living if beat is not owner), key=lambda beat: beat.name)
    return (*(() if owner is None else (owner,)), *others)


def owner_of(beats: Iterable[PredictorBeat], now_s: float) -> PredictorBeat | None:
    """The living one whose forecasts are published; None: there is none."""
    living = present(beats, now_s)
    return living[0] if living and living[0].standing is Standing.OWNER else None
