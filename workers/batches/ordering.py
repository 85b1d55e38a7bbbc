"""Which line of a batch goes next, so that loads are few. Pure.

What is resident goes first, whatever its place in the file: it costs no load. A model that has
to be loaded is taken alone, the one with most lines first, and is then worked off while it is
resident. So a batch over five models needs five loads where nobody evicts them in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from contracts.ids import ModelId


def next_model(
    remaining: Mapping[ModelId, int],
    in_flight: Mapping[ModelId, int],
    *,
    resident: Collection[ModelId],
    loadable: Collection[ModelId],
    current: ModelId | None = None,
) -> ModelId | None:
    """The model whose next line takes the slot that is free; None: none may go now.

    Parameters
    ----------
    remaining : mapping
        Lines that were not begun, by model.
    in_flight : mapping
        Lines that run, by model.
    loadable : collection
        Models that may be loaded for a batch now, or of which nobody knows where they are.
    current : ModelId or None
        The model of the last line: it is stayed with.
    """
    waiting = [model for model, count in remaining.items() if count]
    at_hand = [model for model in waiting if model in resident]
    if at_hand:
        return min(at_hand, key=lambda m: (in_flight.get(m, 0), -remaining[m], m))
    # One load at a time, and one line waits for it: more would only fill the gateway's queue.
    if any(count and model not in resident for model, count in in_flight.items()):
        return None
    cold = [model for model in waiting if model in loadable]
    return min(cold, key=lambda m: (m != current, -remaining[m], m), default=None)
