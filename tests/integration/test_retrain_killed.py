"""A retraining that is killed at any moment leaves a champion that can be believed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adapters.champion_files import DiskChampionStore
from predictor.snapshot import Sealing, unseal

pytestmark = pytest.mark.integration

VERSIONS = {"numpy": "1"}

WRITER = """
import asyncio, sys
from pathlib import Path
import numpy as np
from adapters.champion_files import DiskChampionStore
from predictor.batch_challenger import BoostedChallenger
from predictor.batch_trees import Trees
from predictor.snapshot import Sealing, seal

def trees(value):
    ones = np.zeros((40, 3), dtype=np.int32)
    stay = np.tile(np.arange(3, dtype=np.int32), (40, 1))
    return Trees(value, ones, ones * 1.0, stay, stay, ones + value, 0)

async def write():
    store = DiskChampionStore(Path(sys.argv[1]))
    number = 0.0
    while True:
        number += 1.0
        levels = tuple(trees(number) for _ in range(4))
        challenger = BoostedChallenger(trees=(levels,) * 4, trained_until_s=number)
        sealing = Sealing(key=await store.key(), versions={"numpy": "1"})
        await store.put(seal(challenger, sealing))
        print(number, flush=True)

asyncio.run(write())
"""


def _believed(folder: Path) -> float | None:
    """When the champion was trained; None: there is none. Raises where it is not whole."""

    async def look() -> float | None:
        store = DiskChampionStore(folder)
        snapshot = await store.get()
        if snapshot is None:
            return None
        sealing = Sealing(key=await store.key(), versions=VERSIONS)
        return unseal(snapshot, sealing).trained_until_s

    return asyncio.run(look())


def test_the_champion_is_whole_whenever_its_writer_dies(tmp_path):
    chance = random.Random(7)
    told = 0.0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            told = float(writer.stdout.readline())  # it works, and from here on it may die
            for _ in range(chance.randrange(1, 10)):
                told = float(writer.stdout.readline())
            time.sleep(chance.random() * 0.02)
            writer.kill()
        found = _believed(tmp_path)
        assert found is not None
        assert found >= told


def test_the_key_is_made_once_by_however_many_begin(tmp_path):
    begin = (
        "import asyncio, sys; from pathlib import Path;"
        "from adapters.champion_files import DiskChampionStore as Store;"
        "print(asyncio.run(Store(Path(sys.argv[1])).key()).hex())"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", begin, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert len({one.communicate(timeout=20)[0] for one in started}) == 1
