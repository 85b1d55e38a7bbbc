"""From the world and the forecasts to a plan."""

from __future__ import annotations
