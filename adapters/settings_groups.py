"""Sections of ``headstart.yaml`` that name models together: groups of work, and schedules."""

from __future__ import annotations

from adapters.settings_types import (
    Cpu,
    Cron,
    Memory,
    Number,
    Section,
    Text,
    TimeOfDay,
    Whole,
    Zone,
    setting,
)

MAX_KEEP_MINUTES = 7 * 24 * 60


class ResourceGroup(Section):
    """Share of one kind of work, such as `text_generation`."""

    models: tuple[Text, ...] = setting(
        "Its models: names, or patterns with `*` and `?`. Others belong to the group that is "
        "called as their kind of work: `text_generation` (chat, completion), `embeddings` "
        "(embedding, rerank), `audio_processing`, `image_generation` (image, video, detection).",
        default=(),
        allowed="a list of model names and patterns",
    )
    cpu_limit: Cpu | None = setting(
        "Cores that its requests may take at once where models run on CPUs; each takes as many as "
        "its model file's `threads`, else one. One request may always run.",
        default=None,
        allowed='cores such as "2", "0.5" or "500m"',
    )
    memory_limit: Memory | None = setting(
        "Memory that its loaded models may take together, on each backend. A load beyond it makes "
        "room in its own group.",
        default=None,
        allowed='memory such as "8Gi", "512Mi" or "16G"',
    )
    gpu_limit: Cpu | None = setting(
        "GPUs that its loaded models may fill, on each backend; 0: they run on CPUs, so that "
        "nothing that runs on a GPU is unloaded for them.",
        default=None,
        allowed='GPUs such as "1", "0" or "0.5"',
    )
    concurrency: Whole | None = setting(
        "Its requests that run at once, at each gateway. None: no limit of the group's.",
        default=None,
        ge=1,
        le=100_000,
    )
    queue: Whole | None = setting(
        "Its requests that may wait for admission, at each gateway. None: as many as leave one "
        "place in each class's queue to every other group.",
        default=None,
        ge=0,
        le=100_000,
    )
    precedence: Whole | None = setting(
        "When room is short, groups with a lower number load first and those with a higher one "
        "give theirs. None: text and embeddings 0, images 2, others 1.",
        default=None,
        ge=0,
        le=9,
    )


class Schedule(Section):
    """Models that are loaded at a known time, such as before people come to work."""

    cron: Cron = setting(
        "When it begins, as a cron line.",
        default=...,
        allowed='a cron line of five fields such as "0 8 * * MON-FRI"',
    )
    timezone: Zone = setting(
        "Time zone of the line, changes of the clocks included.",
        default="UTC",
        allowed='a zone such as "Europe/Berlin"',
    )
    models: tuple[Text, ...] = setting(
        "The models: names, or patterns with `*` and `?`. They are loaded ahead by their load "
        "time, and unloaded while it lasts only for requests that find no other room.",
        default=(),
        allowed="a list of model names and patterns",
    )
    keep_minutes: Number | None = setting(
        "How long it lasts. None: until `until`.", default=None, gt=0, le=MAX_KEEP_MINUTES
    )
    until: TimeOfDay | None = setting(
        "The time of day, in the same zone, at which it ends.",
        default=None,
        allowed='a time of day in quotes such as "18:00"',
    )
    yield_: bool = setting(
        "Leave the GPU to others meanwhile: what is not needed goes, and nothing but `models` is "
        "loaded ahead.",
        default=False,
        alias="yield",
    )
