"""Writes docs/reference/reasons.md: ``python -m tests.reasons_page`` after a change of the list."""

from __future__ import annotations

import re
from pathlib import Path

from contracts.reasons import Reason, explain

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/reasons.md"

_HEAD = """# Reasons

Every decision has one of these words, also the decision to do nothing. The list is closed: it is
`contracts/reasons.py`, and this page is written from it (`python -m tests.reasons_page`).

A word is found in the `reason` of `GET /v1/decisions` and of the page **Decisions**, in the label
`reason` of `headstart_decisions_total`, in the header `X-Headstart-Decision` of answers, and in
`headstart explain MODEL`. The numbers that a decision rests on stand beside it, as `evidence`.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, reasons in groups():
        parts.append(f"\n## {title}\n\n| word | what it says |\n|---|---|\n")
        parts += [f"| `{reason}` | {explain(reason)} |\n" for reason in reasons]
    return "".join(parts)


def groups() -> list[tuple[str, list[Reason]]]:
    """The words in the order of the list, under the comments that part it."""
    found: list[tuple[str, list[Reason]]] = []
    source = (ROOT / "contracts/reasons.py").read_text()
    for line in source.split("class Reason", 1)[1].split("_SENTENCES", 1)[0].splitlines():
        if comment := re.fullmatch(r"    # (.+)", line):
            found.append((comment[1], []))
        elif member := re.match(r"    ([A-Z_]+) = ", line):
            found[-1][1].append(Reason[member[1]])
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
