from __future__ import annotations

import re
from pathlib import Path

from contracts.reasons import Reason, explain

ROOT = Path(__file__).parents[2]


def test_every_reason_has_a_sentence_of_its_own():
    sentences = [explain(reason) for reason in Reason]
    assert all(sentences)
    assert len(set(sentences)) == len(sentences)


def test_every_reason_is_given_somewhere():
    """A reason that nothing returns is a promise nobody keeps."""
    texts = "\n".join(
        path.read_text()
        for package in ("controller", "api", "workers")
        for path in (ROOT / package).rglob("*.py")
    )
    unused = [reason for reason in Reason if not re.search(rf"Reason\.{reason.name}\b", texts)]
    assert unused == []
