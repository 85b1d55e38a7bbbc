"""What kind of work a model does, and the group of work that each kind belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Modality(StrEnum):
    """What a model is asked for."""

    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    TRANSCRIPTION = "transcription"
    SPEECH = "speech"
    SOUND = "sound"
    VAD = "vad"
    IMAGE = "image"
    VIDEO = "video"
    DETECTION = "detection"


TEXT_GENERATION = "text_generation"
IMAGE_GENERATION = "image_generation"
AUDIO_PROCESSING = "audio_processing"
EMBEDDINGS = "embeddings"

GROUP_OF_MODALITY: Mapping[Modality, str] = {
    Modality.CHAT: TEXT_GENERATION,
    Modality.COMPLETION: TEXT_GENERATION,
    Modality.EMBEDDING: EMBEDDINGS,
    Modality.RERANK: EMBEDDINGS,
    Modality.TRANSCRIPTION: AUDIO_PROCESSING,
    Modality.SPEECH: AUDIO_PROCESSING,
    Modality.SOUND: AUDIO_PROCESSING,
    Modality.VAD: AUDIO_PROCESSING,
    Modality.IMAGE: IMAGE_GENERATION,
    Modality.VIDEO: IMAGE_GENERATION,
    Modality.DETECTION: IMAGE_GENERATION,
}
"""Groups with these names take the models of these kinds, where no group names the model."""
