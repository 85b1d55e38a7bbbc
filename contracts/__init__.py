"""The vocabulary of Headstart: frozen records, closed lists of words, and ports.

Everything that crosses a wall between two packages is defined here, with the standard
library alone. Times are epoch seconds (``_at_s``) or durations (``_s``), sizes are bytes
(``_bytes``), shares lie in [0, 1] (``_ratio``). ``None`` means "not known", never zero.
"""

from __future__ import annotations
