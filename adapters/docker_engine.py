"""Containers of one compose service, more or fewer of them, through the Docker Engine's own API.

A further container is made from the settings of one that is there: what compose wrote into it is
all that is needed, so neither the compose file nor the docker command is. The last one of a
service is stopped and kept, since without it nothing would say what to make.
"""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

from contracts.errors import Permanent, Transient
from contracts.scaling import Replicas

SERVICE_LABEL = "com.docker.compose.service"
PROJECT_LABEL = "com.docker.compose.project"
NUMBER_LABEL = "com.docker.compose.container-number"

_LIMIT_S = 30.0
_STOP_S = 60
"""A container that goes has so long to end what it serves."""
_WITHOUT_NAMES = frozenset({"bridge", "host", "none"})
"""The engine's own networks, in which containers have no names for each other."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class DockerServices:
    """``Scaler`` over the services of one compose project.

    Parameters
    ----------
    socket : str
        Path of the Docker Engine's unix socket.
    project : str
        The compose project whose services are meant.
    """

    def __init__(self, socket: str, project: str) -> None:
        self._project = project
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def replicas(self, place: str) -> Replicas:
        containers = await self._containers(place)
        running = sum(one["State"] == "running" for one in containers)
        healthy = sum(
            one["State"] == "running" and "(health: starting)" not in str(one.get("Status"))
            and "(unhealthy)" not in str(one.get("Status"))
            for one in containers
        )  # fmt: skip
        return Replicas(ready=healthy, wanted=running)

    async def scale(self, place: str, replicas: int) -> None:
        containers = sorted(await self._containers(place), key=_number)
        running = [one for one in containers if one["State"] == "running"]
        stopped = [one for one in containers if one["State"] != "running"]
        for _ in range(replicas - len(running)):
            if stopped:
                await self._do("POST", f"/containers/{stopped.pop(0)['Id']}/start", ok=(204, 304))
            else:
                containers.append(await self._another(place, containers))
        for one in reversed(running[replicas:]):
            await self._do("POST", f"/containers/{one['Id']}/stop?t={_STOP_S}", ok=(204, 304))
            if _number(one) > 1 and len(containers) > 1:
                await self._do("DELETE", f"/containers/{one['Id']}", ok=(204, 404))
                containers.remove(one)

    async def _containers(self, service: str) -> list[dict[str, Any]]:
        if not _NAME.fullmatch(service):
            raise Permanent(f"{service!r:.80} is no name of a service")
        labels = [f'"{PROJECT_LABEL}={self._project}"', f'"{SERVICE_LABEL}={service}"']
        filters = quote(f'{{"label":[{",".join(labels)}]}}')
        found = await self._do("GET", f"/containers/json?all=true&filters={filters}", ok=(200,))
        if not found:
            raise Permanent(f"project {self._project} has no container of service {service!r}")
        return [one for one in found if isinstance(one, dict)]

    async def _another(self, service: str, containers: list[dict[str, Any]]) -> dict[str, Any]:
        pattern = await self._do("GET", f"/containers/{containers[0]['Id']}/json", ok=(200,))
        number = 1 + max(_number(one) for one in containers)
        name = f"{self._project}-{service}-{number}"
        created = await self._do(
            "POST", f"/containers/create?name={name}", _copy_of(pattern, number), ok=(201,)
        )
        try:
            await self._do("POST", f"/containers/{created['Id']}/start", ok=(204, 304))
        except (Permanent, Transient):
            # Else each further try would leave one more that never ran.
            await self._do("DELETE", f"/containers/{created['Id']}?force=true", ok=(204, 404))
            raise
        labels = {NUMBER_LABEL: str(number)}
        return {"Id": created["Id"], "State": "running", "Labels": labels}

    async def _do(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        ok: tuple[int, ...],
    ) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(path=self._socket),
                timeout=aiohttp.ClientTimeout(total=_LIMIT_S + _STOP_S),
            )
        where = f"{method} {path.partition('?')[0]}"
        try:
            async with self._session.request(method, f"http://docker{path}", json=body) as answer:
                said = await answer.json() if answer.content_type == "application/json" else None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Transient(f"docker: {where}: {str(error) or type(error).__name__}") from error
        if answer.status not in ok:
            message = said.get("message") if isinstance(said, dict) else ""
            kind = Transient if answer.status >= 500 or answer.status == 409 else Permanent
            raise kind(f"docker: {where}: {answer.status} {message}")
        return said


def _number(container: Mapping[str, Any]) -> int:
    text = str((container.get("Labels") or {}).get(NUMBER_LABEL, "1"))
    return int(text) if text.isdecimal() else 1


def _copy_of(pattern: Mapping[str, Any], number: int) -> dict[str, Any]:
    """What to create: the settings of ``pattern`` without what is its alone.

    Names and addresses in its networks are its own; so are ports of the host, which a service
    that is scaled cannot publish (compose refuses that as well).
    """
    config = dict(pattern["Config"])
    config["Labels"] = {**(config.get("Labels") or {}), NUMBER_LABEL: str(number)}
    if str(pattern.get("Id", "")).startswith(str(config.get("Hostname") or "-")):
        # The engine gave it from the container's id; another one gets its own.
        config.pop("Hostname", None)
    service = str(config["Labels"].get(SERVICE_LABEL, ""))
    networks = (pattern.get("NetworkSettings") or {}).get("Networks") or {}
    host = {**(pattern.get("HostConfig") or {}), "PortBindings": {}}
    return {
        **config,
        "HostConfig": host,
        "NetworkingConfig": {
            "EndpointsConfig": {
                name: {} if name in _WITHOUT_NAMES else {"Aliases": [service]} for name in networks
            }
        },
    }
