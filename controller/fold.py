"""Events into the world: the pure reducer."""

from __future__ import annotations
