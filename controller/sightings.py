"""What a node's memory is by all who tell of it: our own probes, and LocalAI itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from contracts.ports import NodeReport
from contracts.readings import GpuReading, ProbeReading, over_all

KINDS = {
    "cuda": frozenset({"cuda"}),
    "rocm": frozenset({"rocm"}),
    "sycl": frozenset({"intel"}),
    "metal": frozenset({"metal"}),
    "cpu": frozenset[str](),
}
"""Which cards serve what a node's models run on; others of those that there are serve Vulkan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one look at a node found of its memory. None: not told.

    ``used_by_others_bytes``: told only where it is told whose each process is.
    """

    memory_total_bytes: int | None
    memory_used_bytes: int | None
    used_by_others_bytes: int | None = None
    reading: ProbeReading | None = None


def sighting(report: NodeReport, probed: ProbeReading | None, accelerator: str) -> Sighting:
    """LocalAI's report and what our probes read of the same machine, as one.

    Our probes are closer to the truth: they see each card, and whose memory it is. Where they
    see no card that the node's models run on, what LocalAI says of its own holds.
    """
    told = report.reading
    cards = cards_for(() if probed is None else probed.gpus, accelerator)
    ours = None if probed is None else over_all(replace(probed, gpus=tuple(map(_shown, cards))))
    by_us = [c for c in cards if c.memory_total_bytes and c.memory_free_bytes is not None]
    if not by_us:
        if told is not None:
            told = replace(told, gpus=cards_for(told.gpus, accelerator))
        return Sighting(
            memory_total_bytes=report.memory_total_bytes,
            memory_used_bytes=report.memory_used_bytes,
            reading=_joined(ours, told),
        )
    total = sum(card.memory_total_bytes or 0 for card in by_us)
    free = sum(card.memory_free_bytes or 0 for card in by_us)
    others = [card.used_by_others_bytes for card in by_us]
    known = [held for held in others if held is not None]
    return Sighting(
        memory_total_bytes=total,
        memory_used_bytes=max(0, total - free),
        used_by_others_bytes=sum(known) if len(known) == len(others) else None,
        reading=ours,
    )


def cards_for(gpus: tuple[GpuReading, ...], accelerator: str) -> tuple[GpuReading, ...]:
    """Those that a node's models run on.

    Of a machine with cards of its own and a processor's graphics beside them, the latter lives
    from the host's memory and is none of them. Where no card is of the kind that is configured,
    all are: what a node runs on is often not set.
    """
    kinds = KINDS.get(accelerator)
    if kinds is not None and not kinds:
        return ()
    fitting = tuple(gpu for gpu in gpus if kinds is None or gpu.accelerator in kinds) or gpus
    own = tuple(gpu for gpu in fitting if not gpu.is_unified)
    return own or fitting


def _joined(probed: ProbeReading | None, told: ProbeReading | None) -> ProbeReading | None:
    """The host as we see it, else as LocalAI does; cards as LocalAI tells of them, if it does."""
    if probed is None:
        return None if told is None else over_all(told)
    if told is None:
        return probed
    if probed.host_memory_total_bytes is None:
        probed = replace(
            probed,
            host_memory_total_bytes=told.host_memory_total_bytes,
            host_memory_used_bytes=told.host_memory_used_bytes,
            host_memory_available_bytes=told.host_memory_available_bytes,
        )
    return over_all(replace(probed, gpus=told.gpus or probed.gpus))


def _shown(card: GpuReading) -> GpuReading:
    """Without its processes: which numbers they have is for no log and no page."""
    return replace(card, processes=None)
