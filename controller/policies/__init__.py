"""Ways to decide who stays: each policy is a small module behind ``base.Policy``."""

from __future__ import annotations
