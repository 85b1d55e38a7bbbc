"""What is done ahead of demand, as it is configured: the warm tier and scheduled warm-ups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpSchedule:
    """A time at which models shall be resident, again and again.

    Attributes
    ----------
    cron, zone : str
        When it begins: a cron line of five fields, in the time of this zone.
    models : tuple of str
        Names and patterns of the models.
    keep_s : float or None
        How long it lasts; None: until ``until``.
    until : str or None
        The time of day in the zone at which it ends, such as "18:00".
    yields : bool
        The GPU is for others meanwhile: nothing but ``models`` is loaded ahead.
    """

    cron: str
    zone: str = "UTC"
    models: tuple[str, ...] = ()
    keep_s: float | None = None
    until: str | None = None
    yields: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmConfig:
    """Keeping the weights of models that are not resident in the host's page cache.

    Attributes
    ----------
    strategy : str
        Which ones: ``adaptive`` (likeliest to be loaded), ``lru``, ``lfu`` or ``fifo``.
    budget_bytes : int or None
        What they may take together; None: half of the host's memory.
    keep_free_bytes : int
        Host memory that stays free whatever is warmed.
    read_bytes_per_s : float
        How fast files are read ahead.
    horizon_s : float
        A model is worth warming by the probability of a load within this time.
    """

    strategy: str = "adaptive"
    budget_bytes: int | None = None
    keep_free_bytes: int = 1024**3
    read_bytes_per_s: float = 500.0 * 1024**2
    horizon_s: float = 900.0
