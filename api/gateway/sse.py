"""What passes in a stream."""

from __future__ import annotations
