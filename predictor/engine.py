"""From events to forecasts, without a clock."""

from __future__ import annotations
