"""Counts per bucket of time, with gaps."""

from __future__ import annotations
