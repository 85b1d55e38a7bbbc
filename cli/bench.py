"""``headstart bench``: what parts of Headstart cost on this machine. One file per benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

import typer

from contracts.errors import Invalid

BENCHES: Mapping[str, tuple[str, str]] = {
    "gateway": ("cli.bench_gateway", "The data path, beside nginx and LiteLLM in one run."),
    "batches": ("cli.bench_batches", "Batches and people on one GPU."),
    "fallback": ("cli.bench_fallback", "Waits while the GPU's memory is held, with CPUs to help."),
    "planner": ("cli.bench_planner", "One run of the planner, at 100 and 5,000 models."),
    "warm": ("cli.bench_warm", "A file of weights, read cold and after it was read ahead."),
    "predictor": ("cli.bench_predictor", "Events a second, 500 forecasts, memory of 5,000 models."),
    "autoscale": ("cli.bench_autoscale", "What foresight is worth to a fleet that starts slowly."),
    "scale": ("cli.bench_scale", "1,000 models on 100 nodes: what breaks first, at which size."),
    "saturation": ("cli.bench_saturation", "What is gained over LocalAI's LRU under full load."),
}
"""Benchmarks: the module whose ``register(app)`` adds each, and what its line in help says."""


def register(app: typer.Typer) -> None:
    """Add the command with its subcommands; only the module of the chosen one is imported."""
    bench = typer.Typer(no_args_is_help=True, help="Measure what parts of Headstart cost.")
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    chosen = words[1] if len(words) > 1 else ""
    for name, (module, summary) in BENCHES.items():
        if name == chosen:
            import_module(module).register(bench)
        else:
            bench.command(name, help=summary)(_placeholder(name))
    # A group of one command would take the command's place.
    bench.callback()(lambda: None)
    app.add_typer(bench, name="bench")


def _placeholder(name: str) -> Callable[[], None]:
    def run() -> None:
        raise Invalid(f"bench {name}: must be the first word after bench")

    return run
