"""Asks ``headstart compose-scaler``, which alone may speak to Docker, for more or fewer."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from urllib.parse import quote

import aiohttp

from contracts.errors import Permanent, Transient
from contracts.scaling import Replicas

_LIMIT_S = 120.0


class ComposeScaler:
    """``Scaler`` over the helper's two calls.

    Parameters
    ----------
    url : str
        Where the helper listens.
    token : str or None
        What it asks for; never logged.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def replicas(self, place: str) -> Replicas:
        said = await self._do("GET", place, None)
        ready, wanted = said.get("ready"), said.get("wanted")
        if not isinstance(ready, int) or not isinstance(wanted, int):
            raise Transient("the compose scaler answered without numbers")
        return Replicas(ready=ready, wanted=wanted)

    async def scale(self, place: str, replicas: int) -> None:
        await self._do("PUT", place, {"replicas": replicas})

    async def _do(self, method: str, place: str, body: object) -> dict[str, object]:
        url = f"{self._url}/services/{quote(place, safe='')}"
        timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                session.request(method, url, json=body, allow_redirects=False) as answer,
            ):
                said = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Transient(f"compose scaler: {str(error) or type(error).__name__}") from error
        if answer.status != 200:
            message = said.get("error") if isinstance(said, dict) else said
            kind = Transient if answer.status >= 500 else Permanent
            raise kind(f"compose scaler: {answer.status} {message}")
        return said if isinstance(said, dict) else {}
