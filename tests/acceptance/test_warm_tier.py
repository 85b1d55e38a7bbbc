"""The warm tier with every process: real files beside the emulated LocalAI, seen by mincore."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.deployment import deployed

pytestmark = pytest.mark.acceptance

MIB = 1024**2
MODELS = [
    {"name": f"chat-{letter}", "footprint_mb": 6000, "load_s": 2, "tokens_per_s": 200}
    for letter in "ab"
]
SIZE = 16 * MIB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """LocalAI's models folder: files that are on the disk and not in the page cache."""
    for model in MODELS:
        path = tmp_path / f"{model['name']}.gguf"
        with path.open("wb") as file:
            file.write(os.urandom(SIZE))
            os.fsync(file.fileno())
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return tmp_path


async def test_a_model_that_had_to_go_is_warm_and_says_so(folder: Path):
    environ = {
        "HEADSTART_LOCALAI__MODELS_PATH": str(folder),
        "HEADSTART_OPTIMIZATION__CACHE_SIZE_GB": "1",
        "HEADSTART_MEMORY_OPTIMIZATION__MODEL_CACHING_STRATEGY": "lru",
        "HEADSTART_OPTIMIZATION__PREFETCH_ENABLED": "false",
    }
    services = ("gateway", "controller", "control")
    async with deployed(MODELS, capacity_mb=8000, services=services, environ=environ) as office:
        for name in ("chat-a", "chat-b"):  # one fits: the first has to go for the second
            assert (await office.chat(name)).status == 200

        async def is_warm() -> bool:
            model = await office.model("chat-a")
            return bool(model["residency"] == "cold" and model["tier"] == "warm")

        await office.until(is_warm, "chat-a is warm")
        model = await office.model("chat-a")
        assert model["weights_bytes"] == SIZE
        assert model["cached_ratio"] > 0.9
        assert (await office.model("chat-b"))["tier"] == "hot"
        decided = await office.control("GET", "/v1/decisions?limit=50")
        assert "warm" in {decision["reason"] for decision in decided.json["data"]}
