"""Looks whether there is a new champion, and says in one line why one is not taken."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import structlog

from contracts.errors import HeadstartError, Invalid
from contracts.insights import ChampionStore
from predictor.batch_challenger import BoostedChallenger
from predictor.snapshot import Sealing, unseal

_log = structlog.get_logger("headstart.predictor")

LOOK_S = 60.0
"""How often a reader should look."""


class ChampionWatch:
    """Reads the snapshot and keeps what it holds.

    Parameters
    ----------
    champions : ChampionStore
    versions : mapping
        See ``predictor.library_versions``.
    """

    def __init__(self, champions: ChampionStore, versions: Mapping[str, str]) -> None:
        self._champions = champions
        self._versions = versions
        self._digest: bytes | None = None
        self._away = False
        self.challenger: BoostedChallenger | None = None
        """The newest that could be believed; None: there is none, or it was refused."""
        self.refused = 0
        """Snapshots that were not taken, so far."""

    async def look(self) -> bool:
        """Whether ``challenger`` has changed since the last look."""
        try:
            snapshot = await self._champions.get()
            digest = None if snapshot is None else hashlib.sha256(snapshot).digest()
            if digest == self._digest:
                self._note_away(None)
                return False
            key = await self._champions.key()
        except HeadstartError as error:
            self._note_away(error)
            return False
        self._note_away(None)
        self._digest, before = digest, self.challenger
        self.challenger = None if snapshot is None else self._opened(snapshot, key)
        return self.challenger is not before

    def _opened(self, snapshot: bytes, key: bytes) -> BoostedChallenger | None:
        try:
            challenger = unseal(snapshot, Sealing(key=key, versions=self._versions))
        except Invalid as error:
            self.refused += 1
            _log.warning("champion_refused", reason=str(error))
            return None
        _log.info(
            "champion_taken",
            trained_until_s=challenger.trained_until_s,
            promoted=challenger.promoted,
        )
        return challenger

    def _note_away(self, error: HeadstartError | None) -> None:
        if error is not None and not self._away:
            _log.warning("champion_store_away", error=str(error))
        if error is None and self._away:
            _log.info("champion_store_back")
        self._away = error is not None
