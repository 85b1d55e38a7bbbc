"""An emulated LocalAI on a real socket, run in a thread of the test's own process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from adapters.clock import ScaledClock
from emulator.context import Emulator
from emulator.models import parse_models
from emulator.options import MIB, EmulatorOptions
from emulator.server import bind, build, make_server, run


class RunningEmulator:
    """``with RunningEmulator(models, scale=50) as emulator: … emulator.url``."""

    def __init__(
        self,
        models: Iterable[Mapping[str, Any]],
        *,
        scale: float = 50.0,
        capacity_mb: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        **options: Any,
    ) -> None:
        self._options = EmulatorOptions(
            models=parse_models(list(models)),
            port=0,
            capacity_bytes=None if capacity_mb is None else capacity_mb * MIB,
            **options,
        )
        self.scale = scale
        self._clock = ScaledClock(scale)
        self._listener = bind(host, port)
        self.url = f"http://{host}:{self._listener.getsockname()[1]}"
        self.emulator: Emulator = build(self._options, self._clock)
        self._server = make_server(self.emulator)
        self._thread = threading.Thread(
            target=run, args=(self.emulator, self._listener, self._server), daemon=True
        )

    def __enter__(self) -> RunningEmulator:
        self._thread.start()
        deadline_s = time.monotonic() + 10.0
        while not self._server.started:
            assert time.monotonic() < deadline_s, "the emulator did not start"
            time.sleep(0.005)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._server.config.timeout_graceful_shutdown = 0
        self._server.should_exit = True
        self._thread.join(timeout=10.0)
        assert not self._thread.is_alive(), "the emulator did not stop"

    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def get(self, path: str) -> Any:
        """A JSON answer of one of the emulator's own paths, for synchronous tests."""
        with urllib.request.urlopen(self.url + path, timeout=10.0) as answer:
            return json.load(answer)

    def arm(self, fault: Mapping[str, Any]) -> None:
        """Arm a fault, as ``POST /emulator/faults`` does."""
        request = urllib.request.Request(
            f"{self.url}/emulator/faults", data=json.dumps(fault).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            assert answer.status == 200

    def events(self, *kinds: str, model: str | None = None) -> list[dict[str, Any]]:
        """The event log, or those of it that are of these kinds."""
        listed = self.emulator.events.after(0)
        return [
            event
            for event in listed
            if (not kinds or event["kind"] in kinds) and model in (None, event["model"])
        ]

    async def wait_for(self, kind: str, *, count: int = 1, model: str | None = None) -> None:
        """Until the log holds so many events of a kind; at most 10 real seconds."""
        deadline_s = time.monotonic() + 10.0
        while len(self.events(kind, model=model)) < count:
            assert time.monotonic() < deadline_s, f"no {kind} came"
            await asyncio.sleep(0.002)
