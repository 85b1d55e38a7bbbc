"""Groups by kind of work: what each may take, and who belongs to which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from contracts.ids import ModelId
from contracts.modalities import GROUP_OF_MODALITY, IMAGE_GENERATION, TEXT_GENERATION, Modality

FIRST = 0

USUAL_PRECEDENCE: Mapping[str, int] = {TEXT_GENERATION: FIRST, "embeddings": FIRST} | {
    IMAGE_GENERATION: 2
}
"""Who goes first when room is short, where the configuration does not say: text before image."""

OTHERS_PRECEDENCE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What the models of one kind of work may take. None: no bound.

    Attributes
    ----------
    models : tuple of str
        Names and patterns (``*``, ``?``) of its models; they stand over what a model can do.
    memory_bytes : int or None
        What its resident models may take together, on each node.
    cpu_cores : float or None
        Cores that its requests may take at once, where models run on CPUs.
    gpus : float or None
        GPUs that its resident models may fill, on each node; 0: they run on CPUs alone.
    concurrency, queue : int or None
        Requests that run at once, and that wait for admission, at each gateway.
    precedence : int
        When room is short, loads of groups with a lower number go first, and idle models of
        groups with a higher one go for them.
    """

    name: str
    models: tuple[str, ...] = ()
    memory_bytes: int | None = None
    cpu_cores: float | None = None
    gpus: float | None = None
    concurrency: int | None = None
    queue: int | None = None
    precedence: int = OTHERS_PRECEDENCE

    @property
    def is_cpu_only(self) -> bool:
        """Whether its models take no GPU memory."""
        return self.gpus == 0


Groups = Mapping[str, GroupConfig]


def group_of(model: ModelId, modality: Modality | None, groups: Groups) -> str:
    """The group that ``model`` belongs to; ``""``: none.

    The first one that names it, by itself before by a pattern; else the one that is called as
    its kind of work is.
    """
    if not groups:
        return ""
    named = [name for name, group in groups.items() if model in group.models]
    matched = named or [
        name
        for name, group in groups.items()
        if any(fnmatchcase(model, pattern) for pattern in group.models)
    ]
    if matched:
        return matched[0]
    usual = "" if modality is None else GROUP_OF_MODALITY[modality]
    return usual if usual in groups else ""
