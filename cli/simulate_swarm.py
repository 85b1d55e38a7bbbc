"""``headstart simulate --swarm N``: random worlds, every policy, every check."""

from __future__ import annotations

import json
import sys

import typer
from rich.console import Console
from rich.progress import Progress

from simulator.swarm import swarm, swarm_policies

FAILED = 1


def run_swarm(count: int, seed: int, *, as_json: bool) -> None:
    """Play and report; exit status 1 when a check failed, with the command for each."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("worlds", total=count)
        failures = swarm(count, seed, done=lambda done: progress.update(task, completed=done))
    for failure in failures:
        sys.stderr.write(
            f"headstart: seed {failure.seed}, policy {failure.policy}: {failure.what}\n"
            f"  again: headstart simulate --swarm 1 --seed {failure.seed}\n"
        )
    policies = swarm_policies()
    if as_json:
        found = {
            "worlds": count,
            "policies": len(policies),
            "failures": [
                {"seed": one.seed, "policy": one.policy, "what": one.what} for one in failures
            ],
            "seed": seed,
        }
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        sys.stdout.write(
            f"{count} worlds from seed {seed} on, {len(policies)} policies each: "
            f"{len(failures)} failed\n"
        )
    if failures:
        raise typer.Exit(FAILED)
