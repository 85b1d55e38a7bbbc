"""The resources of the control API, one file each."""

from __future__ import annotations
