"""The control API, as subcommands ask it: once, and every fault in one line."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from contracts.errors import HeadstartError, Invalid, Permanent, Transient

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Where the control API is. Default: as configured, on this machine.",
        show_default=False,
    ),
]
_LIMIT_REAL_S = 10.0


class ControlApi:
    """The control API at an address, or where it is configured to be; with the admin key."""

    def __init__(self, url: str | None) -> None:
        from adapters.settings import load_settings
        from cli.services import control_url

        settings = load_settings(os.environ)
        self._url = (url or control_url(settings)).rstrip("/")
        self._key = settings.admin_key

    def get(self, path: str) -> Any:
        """What it says. Raises Transient where it does not answer, Permanent where it refuses."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What it says once it has done something."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        if not self._url.startswith(("http://", "https://")):
            raise Invalid(f"--url {self._url!r}: must begin with http:// or https://")
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - checked above
            self._url + path, method=method, headers=headers, data=data
        )
        try:
            with urllib.request.urlopen(request, timeout=_LIMIT_REAL_S) as answer:  # noqa: S310 - as above
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Transient(
                f"the control API at {self._url} does not answer ({reason}); "
                "start it with `headstart up`, or name it with --url"
            ) from error


def _refusal(error: urllib.error.HTTPError) -> HeadstartError:
    try:
        message = str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the control API answered {error.code}"
    return Permanent(message)
