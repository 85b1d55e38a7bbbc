"""The smallest real request of each kind of model, and how its kind is known. Pure.

A model is warm once an inference ran: a load maps weights, the first request touches them,
builds graphs and fills caches. Lists, health checks and loads warm nothing.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.ids import ModelId

SAMPLE_RATE_HZ = 16_000
TEXT = "hi"
IMAGE_SIDE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """One request. ``upload`` is a file that goes with ``body`` as a form.

    ``is_small``: it costs about as much as a word; an image takes seconds, however small.
    """

    path: str
    body: Mapping[str, Any]
    upload: bytes | None = None
    is_small: bool = True


def _chat(model: ModelId) -> WarmUp:
    messages = [{"role": "user", "content": TEXT}]
    return WarmUp(
        path="/v1/chat/completions",
        body={"model": model, "messages": messages, "max_tokens": 1, "stream": False},
    )


def _completion(model: ModelId) -> WarmUp:
    return WarmUp(path="/v1/completions", body={"model": model, "prompt": TEXT, "max_tokens": 1})


def _embedding(model: ModelId) -> WarmUp:
    return WarmUp(path="/v1/embeddings", body={"model": model, "input": TEXT})


def _rerank(model: ModelId) -> WarmUp:
    body = {"model": model, "query": TEXT, "documents": [TEXT], "top_n": 1}
    return WarmUp(path="/v1/rerank", body=body)


def _speech(model: ModelId) -> WarmUp:
    return WarmUp(path="/v1/audio/speech", body={"model": model, "input": TEXT})


def _transcription(model: ModelId) -> WarmUp:
    return WarmUp(path="/v1/audio/transcriptions", body={"model": model}, upload=silence(1.0))


def _vad(model: ModelId) -> WarmUp:
    return WarmUp(path="/vad", body={"model": model, "audio": [0.0] * 512})


def _detection(model: ModelId) -> WarmUp:
    picture = base64.b64encode(grey_picture(IMAGE_SIDE)).decode()
    return WarmUp(path="/v1/detection", body={"model": model, "image": picture})


def _image(model: ModelId) -> WarmUp:
    size = f"{IMAGE_SIDE}x{IMAGE_SIDE}"
    body = {"model": model, "prompt": TEXT, "size": size, "n": 1, "step": 1}
    return WarmUp(path="/v1/images/generations", body=body, is_small=False)


def _sound(model: ModelId) -> WarmUp:
    body = {"model_id": model, "text": TEXT, "duration_seconds": 1}
    return WarmUp(path="/v1/sound-generation", body=body, is_small=False)


_REQUESTS: dict[str, Callable[[ModelId], WarmUp]] = {
    # What a model can do beside others is tried in this order: the cheapest words first.
    "chat": _chat,
    "completion": _completion,
    "embeddings": _embedding,
    "rerank": _rerank,
    "vad": _vad,
    "transcript": _transcription,
    "tts": _speech,
    "detection": _detection,
    "sound_generation": _sound,
    "image": _image,
}
"""By LocalAI's words for what a model can be asked for."""

_OURS = {"embedding": "embeddings", "speech": "tts", "transcription": "transcript"}
"""Other words for the same."""

_BACKENDS: tuple[tuple[str, str], ...] = (
    ("whisper", "transcript"), ("moonshine", "transcript"), ("parakeet", "transcript"),
    ("nemo", "transcript"), ("silero", "vad"), ("rerank", "rerank"), ("piper", "tts"),
    ("kokoro", "tts"), ("bark", "tts"), ("coqui", "tts"), ("chatterbox", "tts"),
    ("vibevoice", "tts"), ("neutts", "tts"), ("outetts", "tts"), ("kitten-tts", "tts"),
    ("diffusion", "image"), ("diffusers", "image"), ("rfdetr", "detection"),
    ("bert-embeddings", "embeddings"), ("sentencetransformers", "embeddings"),
    ("musicgen", "sound_generation"),
)  # fmt: skip
"""Parts of backends' names, where neither usecases nor switches say what a model is for."""

_NAMES: tuple[tuple[str, str], ...] = (
    ("whisper", "transcript"), ("rerank", "rerank"), ("embed", "embeddings"),
    ("bge-", "embeddings"), ("minilm", "embeddings"), ("silero", "vad"), ("-vad", "vad"),
    ("tts", "tts"), ("piper", "tts"), ("kokoro", "tts"), ("voice-", "tts"),
    ("stablediffusion", "image"), ("stable-diffusion", "image"), ("sdxl", "image"),
    ("flux", "image"), ("dream", "image"),
)  # fmt: skip
"""Parts of models' names: the last resort, for versions that tell nothing of a model."""


def warm_up(model: ModelId, usecases: Iterable[str]) -> WarmUp | None:
    """The smallest request for a model of these uses; None where we know none."""
    uses = {_OURS.get(use, use) for use in map(_plain, usecases)}
    found = (make(model) for use, make in _REQUESTS.items() if use in uses)
    return next(found, None)


def usecases_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a model's own file says it is for; empty where it does not say.

    >>> usecases_of({"backend": "whisper"})
    ('transcript',)
    """
    known = config.get("known_usecases")
    if isinstance(known, list) and known:
        return tuple(_plain(str(use)) for use in known)
    if config.get("embeddings") is True:
        return ("embeddings",)
    if config.get("reranking") is True:
        return ("rerank",)
    backend = str(config.get("backend") or "").lower()
    told = next((use for part, use in _BACKENDS if part in backend), None)
    if told is None and config.get("tts"):
        told = "tts"
    return () if told is None else (told,)


def usecases_by_name(model: ModelId) -> tuple[str, ...]:
    """What a model is for, guessed; chat where nothing hints at anything else."""
    name = model.lower()
    return (next((use for part, use in _NAMES if part in name), "chat"),)


def silence(length_s: float) -> bytes:
    """A WAV file, mono, 16 bit, in which nobody speaks."""
    frames = int(length_s * SAMPLE_RATE_HZ)
    data = bytes(2 * frames)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1,
        SAMPLE_RATE_HZ, 2 * SAMPLE_RATE_HZ, 2, 16, b"data", len(data),
    )  # fmt: skip
    return head + data


def grey_picture(side: int) -> bytes:
    """A PNG of so many grey dots in each direction."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    rows = (b"\0" + b"\x80" * side) * side
    shape = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", shape) + end


def _plain(use: str) -> str:
    """LocalAI says ``chat`` on one path and ``FLAG_CHAT`` on another."""
    return use.strip().lower().removeprefix("flag_")
