"""Snapshots: signed, of numbers alone, and refused in one line."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import Invalid, Transient
from predictor.batch_features import FEATURES, MINUTES_NEEDED
from predictor.library_versions import library_versions
from predictor.snapshot import MAGIC, Sealing, _signature, seal, unseal
from predictor.snapshot_watch import ChampionWatch
from simulator.memory_insights import MemoryChampionStore
from tests.small_challenger import CHALLENGER

SEALING = Sealing(key=b"k" * 32, versions={"numpy": "2.0", "scikit-learn": "1.9"})
SNAPSHOT = seal(CHALLENGER, SEALING)


def resealed(change, sealing=SEALING):
    """The snapshot with other contents, rightly signed."""
    with np.load(io.BytesIO(SNAPSHOT[len(MAGIC) + 65 :])) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes())
    change(header, arrays)
    if "header" in arrays:
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    body = buffer.getvalue()
    return MAGIC + _signature(body, sealing.key) + b"\n" + body


def test_what_was_sealed_says_the_same_again():
    opened = unseal(SNAPSHOT, SEALING)
    assert (opened.trained_until_s, opened.promoted) == (1.7e9, True)
    minutes = np.zeros((2, MINUTES_NEEDED))
    minutes[0, -5:] = 4.0
    assert np.array_equal(opened.quantiles(minutes, 1e9), CHALLENGER.quantiles(minutes, 1e9))
    assert b"pickle" not in SNAPSHOT


@pytest.mark.parametrize(
    ("snapshot", "sealing", "said"),
    [
        (b"", SEALING, "cut off"),
        (MAGIC, SEALING, "cut off"),
        (b"x" + SNAPSHOT, SEALING, "not one of this version"),
        (SNAPSHOT[:-1], SEALING, "signature"),
        (SNAPSHOT, dataclasses.replace(SEALING, key=b"other" * 8), "signature"),
        (SNAPSHOT, dataclasses.replace(SEALING, versions={"numpy": "3.0"}), "made with numpy 2.0"),
        (SNAPSHOT, dataclasses.replace(SEALING, versions={"river": "1"}), "river None"),
    ],
)
def test_a_snapshot_that_is_not_ours_is_refused_in_one_line(snapshot, sealing, said):
    with pytest.raises(Invalid, match=said) as refused:
        unseal(snapshot, sealing)
    assert "\n" not in str(refused.value)


def drop_header(header, arrays):
    del arrays["header"]


def other_features(header, arrays):
    header["features"] = ["x", *FEATURES[1:]]


def leads_out(header, arrays):
    arrays["left_0_0"] = arrays["left_0_0"] + 100


def holds_objects(header, arrays):
    arrays["value_0_0"] = np.array([[{}, {}, {}]], dtype=object)


def is_missing(header, arrays):
    del arrays["value_3_3"]


def no_time(header, arrays):
    header["trained_until_s"] = float("inf")


def no_depth(header, arrays):
    header["depths"] = []


def too_large(header, arrays):
    arrays["feature_0_0"] = np.zeros((1, 4_000_001), dtype=np.int8)


@pytest.mark.parametrize(
    "change",
    [
        *(drop_header, other_features, leads_out, holds_objects),
        *(is_missing, no_time, no_depth, too_large),
    ],
)
def test_numbers_that_cannot_be_are_refused_though_they_are_signed(change):
    with pytest.raises(Invalid, match=r"^(snapshot|trees): "):
        unseal(resealed(change), SEALING)


@given(place=st.integers(0, len(SNAPSHOT) - 1), bit=st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_no_changed_bit_is_believed(place, bit):
    changed = bytearray(SNAPSHOT)
    changed[place] ^= 1 << bit
    with pytest.raises(Invalid):
        unseal(bytes(changed), SEALING)


@pytest.fixture
def champions():
    return MemoryChampionStore(SEALING.key)


@pytest.fixture
def watch(champions):
    return ChampionWatch(champions, SEALING.versions)


async def test_a_new_champion_is_taken_once(champions, watch):
    assert await watch.look() is False
    await champions.put(SNAPSHOT)
    assert await watch.look() is True
    assert watch.challenger is not None
    assert watch.challenger.promoted
    assert await watch.look() is False


async def test_a_bad_snapshot_is_one_line_and_leaves_nobody(champions, watch, caplog):
    await champions.put(SNAPSHOT)
    await watch.look()
    await champions.put(SNAPSHOT[:-1])
    assert await watch.look() is True
    assert await watch.look() is False
    assert watch.challenger is None
    assert watch.refused == 1
    # A second bad one changes nothing any more.
    await champions.put(b"nonsense")
    assert await watch.look() is False
    assert watch.refused == 2


async def test_a_store_that_is_away_changes_nothing(champions, watch):
    await champions.put(SNAPSHOT)
    await watch.look()
    champions.fault = Transient("away")
    assert await watch.look() is False
    assert await watch.look() is False
    assert watch.challenger is not None
    champions.fault = None
    assert await watch.look() is False


def test_versions_are_those_that_are_installed():
    assert library_versions()["numpy"] == np.__version__
