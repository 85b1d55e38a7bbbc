"""``python -m emulator`` and ``headstart emulate``: an emulated LocalAI from the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from emulator.options import EmulatorOptions

EXIT_INVALID = 2

_AT_ONCE = "Requests of all models at once; 0 is no limit."
_RECLAIM = "Stop models above this share of memory; 0 never."
_FAULTS = "YAML or JSON file with a list of faults to arm."
_LOG = "Also write every event here, one line of JSON each."
_OLDER = "Version to be, from 2.21 to 4.9: calls that came later are missing."
_PEERS = "YAML or JSON file with a list of other machines: name, kind."
_EXACT = "A load takes exactly load_s, without LocalAI's 2 s steps."


def emulate(
    *,
    models: Annotated[Path, typer.Option(help="YAML or JSON file with the models.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")
    ] = 8081,
    capacity_mb: Annotated[
        int | None, typer.Option(min=0, help="GPU memory in MiB; without it loads always fit.")
    ] = None,
    max_active_backends: Annotated[
        int, typer.Option(min=0, help="LocalAI's own limit on loaded models; 0 is none.")
    ] = 0,
    watchdog_idle_timeout: Annotated[
        float, typer.Option(min=0, help="Unload a model idle for so many seconds; 0 never.")
    ] = 0.0,
    watchdog_busy_timeout: Annotated[
        float, typer.Option(min=0, help="End a model that works so many seconds; 0 never.")
    ] = 0.0,
    memory_reclaimer_threshold: Annotated[float, typer.Option(min=0, max=1, help=_RECLAIM)] = 0.0,
    max_concurrent_backend_requests: Annotated[int, typer.Option(min=0, help=_AT_ONCE)] = 0,
    api_key: Annotated[
        list[str] | None, typer.Option(help="Ask for one of these keys.", show_default=False)
    ] = None,
    user_key: Annotated[
        list[str] | None, typer.Option(help="A key that may not manage.", show_default=False)
    ] = None,
    localai_version: Annotated[str, typer.Option(help=_OLDER)] = "4.9",
    disable_webui: Annotated[bool, typer.Option(help="Without the UI and its paths.")] = False,
    peers: Annotated[Path | None, typer.Option(help=_PEERS)] = None,
    event_log: Annotated[Path | None, typer.Option(help=_LOG)] = None,
    exact_load_times: Annotated[bool, typer.Option(help=_EXACT)] = False,
    faults: Annotated[Path | None, typer.Option(help=_FAULTS)] = None,
) -> None:
    """Run a LocalAI that has no weights: same API, load times, memory and failures."""
    from emulator.faults import parse_fault
    from emulator.models import read_list, read_models
    from emulator.options import MIB, EmulatorOptions
    from emulator.peers import parse_peers
    from emulator.versions import parse_version

    _serve(
        lambda: EmulatorOptions(
            models=read_models(models),
            host=host,
            port=port,
            capacity_bytes=None if capacity_mb is None else capacity_mb * MIB,
            model_limit=max_active_backends or None,
            watchdog_idle_s=watchdog_idle_timeout or None,
            watchdog_busy_s=watchdog_busy_timeout or None,
            reclaim_over=memory_reclaimer_threshold or None,
            max_concurrent=max_concurrent_backend_requests or None,
            exact_load_times=exact_load_times,
            api_keys=tuple(api_key or ()),
            user_keys=tuple(user_key or ()),
            version=parse_version(localai_version),
            has_ui=not disable_webui,
            peers=() if peers is None else parse_peers(read_list(peers)),
            event_log=event_log,
            faults=() if faults is None else tuple(map(parse_fault, read_list(faults))),
        )
    )


def _serve(read_options: Callable[[], EmulatorOptions]) -> None:
    from adapters.clock import ScaledClock
    from adapters.log_setup import configure_logging
    from contracts.errors import Invalid
    from emulator.server import bind, build, run

    try:
        options = read_options()
        configure_logging("emulator")
        clock = ScaledClock.from_environment(os.environ)
        listener = bind(options.host, options.port)
    except Invalid as error:
        typer.echo(f"emulator: {error}", err=True)
        raise typer.Exit(EXIT_INVALID) from None
    bound = listener.getsockname()
    typer.echo(json.dumps({"url": f"http://{bound[0]}:{bound[1]}"}))
    sys.stdout.flush()
    run(build(options, clock), listener)


def main() -> None:
    """Entry point of ``python -m emulator``."""
    typer.run(emulate)


if __name__ == "__main__":
    main()
