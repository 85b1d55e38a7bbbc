"""How far clocks on the wall are from UTC: the time of day that people keep to. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

_FIRST_S, _LAST_S = 0.0, 4e9


def utc_offset_s(zone: str, at_s: float) -> float:
    """Seconds by which the clocks of ``zone`` are ahead of UTC at that moment.

    Parameters
    ----------
    zone : str
        A name of the IANA database, such as ``Europe/Berlin``.
    at_s : float
        Seconds since the epoch; before or past what a calendar knows, the nearest that it does.

    Raises
    ------
    ZoneInfoNotFoundError
        There is no such zone; the configuration looks at its names before.
    """
    moment = datetime.fromtimestamp(min(max(at_s, _FIRST_S), _LAST_S), UTC)
    offset = moment.astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None, "a time with a zone has one"
    return offset.total_seconds()
