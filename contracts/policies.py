"""The policies that a deployment can be set to, by name, each in one line."""

from __future__ import annotations

from collections.abc import Mapping

POLICY_SUMMARIES: Mapping[str, str] = {
    "headstart": "Keeps what would be missed most by forecast, and loads ahead of demand.",
    "lru": "Evicts what was used longest ago, as many as the bytes need.",
    "localai-lru": "LocalAI's own rule: so many models as always fit, whatever their size.",
    "idle-timeout": "As lru; and a model goes when nobody used it for the idle time.",
    "gdsf": "Evicts what has the least requests times load time per byte.",
    "weighted-score": "Evicts by a score of priority, rarity and load time.",
}
