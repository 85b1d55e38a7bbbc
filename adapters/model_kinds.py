"""LocalAI's words for what a model can be asked for → the kind of work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contracts.modalities import Modality

_WORDS: Mapping[str, Modality] = {
    "chat": Modality.CHAT,
    "completion": Modality.COMPLETION,
    "edit": Modality.COMPLETION,
    "embeddings": Modality.EMBEDDING,
    "embedding": Modality.EMBEDDING,
    "rerank": Modality.RERANK,
    "image": Modality.IMAGE,
    "video": Modality.VIDEO,
    "detection": Modality.DETECTION,
    "transcript": Modality.TRANSCRIPTION,
    "transcription": Modality.TRANSCRIPTION,
    "diarization": Modality.TRANSCRIPTION,
    "tts": Modality.SPEECH,
    "speech": Modality.SPEECH,
    "sound_generation": Modality.SOUND,
    "vad": Modality.VAD,
}


def modality_of(uses: Iterable[str]) -> Modality | None:
    """The first kind of work in the order of ``Modality``; None where no word is known.

    >>> modality_of(["FLAG_TRANSCRIPT", "tts"])
    <Modality.TRANSCRIPTION: 'transcription'>
    """
    plain = (use.strip().lower().removeprefix("flag_").replace("-", "_") for use in uses)
    found = {_WORDS[use] for use in plain if use in _WORDS}
    return next((kind for kind in Modality if kind in found), None)
