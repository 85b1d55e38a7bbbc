"""A LocalAI instance as a pure state machine: memory, loads, slots."""

from __future__ import annotations
