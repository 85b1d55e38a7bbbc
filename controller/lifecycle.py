"""Which residency may follow which."""

from __future__ import annotations
