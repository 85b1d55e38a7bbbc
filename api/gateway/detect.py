"""Which model and class a request is for."""

from __future__ import annotations
