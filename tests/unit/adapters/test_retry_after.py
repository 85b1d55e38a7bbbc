from __future__ import annotations

import pytest

from adapters.retry_after import MAX_S, seconds_told


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        (" 007 ", 7.0),
        ("0", 0.0),
        ("9" * 12, MAX_S),
        ("9" * 5_000, MAX_S),
        *(
            (text, None)
            for text in (None, "", "-1", "1.5", "\xb2", "\u0663", "Wed, 21 Oct 2026", "1e3")
        ),
    ],
)
def test_seconds_of_retry_after(text, seconds):
    assert seconds_told(text) == seconds
