"""The fence of a store that one writer of several may write to: checked in the write's own script.

The store keeps the greatest token that it has seen, and refuses smaller ones. So a writer that
lost its lease without noticing, since it was stopped between its look and its write, changes
nothing once its heir has written.
"""

from __future__ import annotations

from contracts.errors import NotLeader

FENCE_LUA = """
local function is_fenced_off(key, token)
  if token == '' then return false end
  local seen = tonumber(redis.call('GET', key) or '0')
  if seen > tonumber(token) then return true end
  if seen < tonumber(token) then redis.call('SET', key, token) end
  return false
end
"""
"""Begins a script; ``is_fenced_off(KEYS[n], ARGV[n])`` is true for a token that is refused."""

FENCED_OFF = -1
"""What a script answers then."""


def token_argument(token: int | None) -> str:
    """The token as ``is_fenced_off`` takes it; None: the writer has no rival."""
    return "" if token is None else str(token)


def check_fence(reply: object, what: str) -> None:
    """Raise NotLeader where a script answered that the writer is fenced off."""
    if reply == FENCED_OFF:
        raise NotLeader(f"{what}: another has written with a greater token")
