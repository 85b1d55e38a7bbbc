"""Several processes as one: started, known to be ready, started again, ended together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO

from adapters.process_signals import on_hang_up
from cli.output import PrefixedTerminal, RotatedFile, WriteLine
from cli.service import Backoff, Service, ServiceSpec
from contracts.errors import Transient

__all__ = ["Backoff", "ServiceSpec", "Supervisor"]

_START_S = 60.0


class Supervisor:
    """Runs ``specs`` as child processes that never outlive this one.

    An async context manager: ready inside the block, all gone after it.

    Parameters
    ----------
    log_dir : Path, optional
        Each process's lines go to ``<name>.log`` there, bounded. Default: no files.
    terminal : file, optional
        Each process's lines go there with its name before them. Default: nowhere.
    in_order : bool
        Start one when the one before is ready, rather than all together.
    start_s : float
        Real seconds that all may take to be ready.
    """

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        *,
        log_dir: Path | None = None,
        terminal: TextIO | None = None,
        in_order: bool = False,
        start_s: float = _START_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._specs = tuple(specs)
        self._log_dir = log_dir
        self._terminal = None if terminal is None else PrefixedTerminal(terminal)
        self._in_order = in_order
        self._start_s = start_s
        self._backoff = backoff or Backoff()
        self._files: list[RotatedFile] = []
        self._services: dict[str, Service] = {}
        self._tasks: dict[str, asyncio.Task[int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The services, in the order given."""
        return tuple(spec.name for spec in self._specs)

    def pid(self, name: str) -> int | None:
        """The process of a service; None while there is none."""
        return self._services[name].pid

    def restarts(self, name: str) -> int:
        """How often it was started again."""
        return self._services[name].restarts

    def exit_code(self, name: str) -> int | None:
        """How a service's last process ended; negative: by that signal. None: none has yet."""
        return self._services[name].exit_code

    def is_ready(self, name: str) -> bool:
        """Whether its present process was seen ready."""
        return self._services[name].ready.is_set()

    def kill(self, name: str, chosen: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a service's process; it is started again if it ends by that."""
        self._services[name].send_signal(chosen)

    async def hold(self, name: str) -> None:
        """Kill a service and keep it down until ``release``."""
        await self._services[name].hold()

    async def release(self, name: str) -> None:
        """Start a service again after ``hold``, and wait until it is ready."""
        service = self._services[name]
        service.release()
        await self._until_ready(service)

    async def start(self) -> None:
        """Start everything and wait until all of it is ready.

        Raises
        ------
        Invalid
            One of them ended with exit code 2 (configuration, port): its last line. Nothing
            is left running.
        Transient
            Not all were ready in time, or one that is not started again ended.
        """
        try:
            async with asyncio.timeout(self._start_s):
                for spec in self._specs:
                    service = self._launch(spec)
                    if self._in_order:
                        await self._until_ready(service)
                await asyncio.gather(*(self._until_ready(each) for each in self._services.values()))
        except TimeoutError:
            late = [name for name in self._services if not self.is_ready(name)]
            said = "; ".join(
                f"{name}: {self._services[name].last_line or 'said nothing'}" for name in late
            )
            await self.stop()
            raise Transient(f"not ready after {self._start_s:g} s: {said}") from None
        except BaseException:
            await self.stop()
            raise

    async def serve(self, on_ready: Callable[[], None] | None = None) -> None:
        """Start what is not started, then wait for SIGTERM or SIGINT, and end all.

        A signal during the start ends all as well; a second one kills at once. SIGHUP goes on
        to each of them. ``on_ready`` is called once everything is ready.

        Raises
        ------
        Invalid, Transient
            As ``start``; Invalid also later, for services without a readiness check.
        """
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, asked)
        on_hang_up(stop=lambda: self._on_signal(asked), reload=self.hang_up)
        waiting = asyncio.create_task(asked.wait())
        try:
            if not self._tasks:
                await self._start_unless(waiting)
            if on_ready is not None and not asked.is_set():
                on_ready()
            await self._watch_until(waiting)
        finally:
            waiting.cancel()
            await self.stop()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def hang_up(self) -> None:
        """Have each service read its configuration again, as far as it can."""
        for service in self._services.values():
            service.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        """End all of them: at once, each with its own grace, then by force."""
        await asyncio.gather(*(service.stop() for service in self._services.values()))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for file in self._files:
            file.close()
        self._files.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start_unless(self, asked: asyncio.Task[Literal[True]]) -> None:
        starting = asyncio.create_task(self.start())
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result()

    async def _watch_until(self, asked: asyncio.Task[Literal[True]]) -> None:
        running: set[asyncio.Task[int] | asyncio.Task[Literal[True]]] = {*self._tasks.values()}
        while not asked.done():
            done, _ = await asyncio.wait(running | {asked}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            running -= done

    def _launch(self, spec: ServiceSpec) -> Service:
        writers: list[WriteLine] = []
        if self._log_dir is not None:
            file = RotatedFile(self._log_dir / f"{spec.name}.log")
            self._files.append(file)
            writers.append(file.write)
        if self._terminal is not None:
            writers.append(self._terminal.writer(spec.name))
        service = Service(spec, tuple(writers), self._backoff)
        self._services[spec.name] = service
        self._tasks[spec.name] = asyncio.create_task(service.run())
        return service

    async def _until_ready(self, service: Service) -> None:
        running = self._tasks[service.spec.name]
        ready = asyncio.create_task(service.ready.wait())
        try:
            await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if running.done():
            raise Transient(
                f"{service.spec.name} ended with exit code {running.result()}: "
                f"{service.last_line or 'it said nothing'}"
            )

    def _on_signal(self, asked: asyncio.Event) -> None:
        if asked.is_set():
            for service in self._services.values():
                service.kill()
        asked.set()
