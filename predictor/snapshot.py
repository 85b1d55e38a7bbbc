"""A challenger as signed bytes: numbers and one JSON header, nothing that could run.

Layout: a line that names the format, a line with the HMAC-SHA256 of the rest in hex, then a
numpy archive of plain arrays (read with ``allow_pickle=False``). The header in it says with which
libraries it was made; where they are not the ones here, it is not used and rebuilt from history.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from contracts.errors import Invalid
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.batch_challenger import BoostedChallenger
from predictor.batch_features import FEATURES
from predictor.batch_trees import Trees

MAGIC = b"headstart-champion 1\n"
_SIGNATURE_HEX = 64
_MAX_VALUES = 4_000_000
_ARRAYS = ("feature", "threshold", "left", "right", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """What a snapshot is made and read with.

    Attributes
    ----------
    key : bytes
        Never part of a snapshot or of a log.
    versions : mapping
        Libraries on which the numbers rest, such as ``{"numpy": "2.4.1"}``.
    """

    key: bytes
    versions: Mapping[str, str]


def seal(challenger: BoostedChallenger, sealing: Sealing) -> bytes:
    """The challenger as bytes that ``unseal`` believes."""
    header = {
        "versions": dict(sealing.versions),
        "features": list(FEATURES),
        "horizons_s": list(HORIZONS_S),
        "levels": list(QUANTILE_LEVELS),
        "trained_until_s": challenger.trained_until_s,
        "promoted": challenger.promoted,
        "baselines": [[one.baseline for one in levels] for levels in challenger.trees],
        "depths": [[one.depth for one in levels] for levels in challenger.trees],
    }
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
    }
    for horizon, levels in enumerate(challenger.trees):
        for level, one in enumerate(levels):
            for name in _ARRAYS:
                arrays[f"{name}_{horizon}_{level}"] = getattr(one, name)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    body = buffer.getvalue()
    return MAGIC + _signature(body, sealing.key) + b"\n" + body


def unseal(snapshot: bytes, sealing: Sealing) -> BoostedChallenger:
    """The challenger in a snapshot.

    Raises
    ------
    Invalid
        In one line: it is none, it is not signed with this key, it was made by other libraries,
        or its numbers cannot be.
    """
    start = len(MAGIC) + _SIGNATURE_HEX + 1
    is_whole = len(snapshot) > start and snapshot[start - 1 : start] == b"\n"
    if not snapshot.startswith(MAGIC) or not is_whole:
        raise Invalid("snapshot: is not one of this version, or cut off")
    body = snapshot[start:]
    if not hmac.compare_digest(snapshot[len(MAGIC) : start - 1], _signature(body, sealing.key)):
        raise Invalid("snapshot: its signature does not fit the key here; it is not used")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            _check_origin(header, sealing)
            challenger = _challenger(header, archive)
    except (ValueError, KeyError, TypeError, IndexError, OSError, zipfile.BadZipFile) as error:
        raise Invalid(f"snapshot: cannot be read: {type(error).__name__}") from error
    challenger.check()
    return challenger


def _signature(body: bytes, key: bytes) -> bytes:
    return hmac.new(key, MAGIC + body, hashlib.sha256).hexdigest().encode()


def _check_origin(header: Mapping[str, Any], sealing: Sealing) -> None:
    for name, version in sorted(sealing.versions.items()):
        made_with = header["versions"].get(name)
        if made_with != version:
            raise Invalid(
                f"snapshot: made with {name} {made_with}, here is {version}; it is rebuilt from "
                "history at the next retraining"
            )
    expected = {
        "features": list(FEATURES),
        "horizons_s": list(HORIZONS_S),
        "levels": list(QUANTILE_LEVELS),
    }
    for name, value in expected.items():
        if header[name] != value:
            raise Invalid(f"snapshot: made for other {name}; it is rebuilt at the next retraining")


def _challenger(header: Mapping[str, Any], archive: Any) -> BoostedChallenger:
    trained_until_s = float(header["trained_until_s"])
    if not math.isfinite(trained_until_s):
        raise ValueError("time")
    return BoostedChallenger(
        trees=tuple(
            tuple(_trees(header, archive, horizon, level) for level in range(len(QUANTILE_LEVELS)))
            for horizon in range(len(HORIZONS_S))
        ),
        trained_until_s=trained_until_s,
        promoted=header["promoted"] is True,
    )


def _trees(header: Mapping[str, Any], archive: Any, horizon: int, level: int) -> Trees:
    feature, threshold, left, right, value = (
        archive[f"{name}_{horizon}_{level}"] for name in _ARRAYS
    )
    if feature.size > _MAX_VALUES:
        raise ValueError("size")
    return Trees(
        baseline=float(header["baselines"][horizon][level]),
        feature=feature.astype(np.int32),
        threshold=threshold.astype(np.float64),
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        value=value.astype(np.float64),
        depth=int(header["depths"][horizon][level]),
    )
