"""Who goes first."""

from __future__ import annotations
