"""The names that our own calls go by (``User-Agent``)."""

from __future__ import annotations

MANAGEMENT_AGENT = "headstart"

WARM_UP_AGENT = "headstart-warm-up"
"""Inference that nobody asked for. A gateway that such a call comes to, since it stands before
the LocalAI of another one, takes it for a health check: it is no demand there either."""
