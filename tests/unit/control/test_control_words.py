"""Sentences for decisions, and what an unknown name may have meant."""

from __future__ import annotations

import pytest

from api.control.nearest import nearest_names
from api.control.paging import cut_page
from api.control.phrases import sentence
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason, explain


def decision(outcome: Outcome, reason: Reason, *evidence: str) -> Decision:
    return Decision(
        policy="headstart",
        subject="llama",
        outcome=outcome,
        reason=reason,
        evidence=tuple((name, 1.0) for name in evidence),
    )


@pytest.mark.parametrize(
    ("outcome", "reason", "evidence", "begins"),
    [
        (Outcome.CHANGE, Reason.DEMAND, ("waiting",), "Load llama: a request waits"),
        (Outcome.CHANGE, Reason.PINNED, (), "Load llama: it is pinned"),
        (Outcome.CHANGE, Reason.LEAST_EXPECTED_LOSS, (), "Unload llama: of all idle"),
        (Outcome.CHANGE, Reason.OPERATOR, ("waiting",), "Load llama: somebody asked"),
        (Outcome.CHANGE, Reason.OPERATOR, (), "Unload llama: somebody asked"),
        (Outcome.CHANGE, Reason.OBSERVE_ONLY, (), "Change llama: the mode"),
        (Outcome.HOLD, Reason.NO_ROOM, (), "Wait with loading llama: it does not fit"),
        (Outcome.HOLD, Reason.GAIN_TOO_SMALL, (), "Prefetch nothing on llama: the expected"),
        (Outcome.HOLD, Reason.IN_FLIGHT, (), "Leave llama: it serves requests"),
        (Outcome.ABSTAIN, Reason.NO_FORECAST, (), "No opinion on llama: there is no valid"),
    ],
)
def test_a_decision_in_plain_words(outcome, reason, evidence, begins):
    assert sentence(decision(outcome, reason, *evidence)).startswith(begins)


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_reason_gives_a_whole_sentence(outcome, reason):
    text = sentence(decision(outcome, reason))
    assert text.endswith(f"{explain(reason)}.")
    assert text[0].isupper()


def test_shortened_names_come_before_misspelled_ones():
    known = ["qwen3-8b-instruct", "qwen2-7b", "llama-3.3-70b", "Llama-Guard"]
    assert nearest_names("qwen3", known)[0] == "qwen3-8b-instruct"
    assert nearest_names("lama-3.3-70b", known)[0] == "llama-3.3-70b"
    assert nearest_names("LLAMA-GUARD", known)[0] == "Llama-Guard"
    assert nearest_names("zzz", known) == ()
    assert nearest_names("a", known) == ()
    assert len(nearest_names("8b", ["x8b", "y8b"], count=1)) <= 1


def test_a_page_goes_on_behind_an_item_that_is_gone():
    names = ["a", "c", "d"]
    assert cut_page(names, limit=2, after=None, key=str) == (["a", "c"], True)
    assert cut_page(names, limit=2, after="b", key=str) == (["c", "d"], False)
    assert cut_page(names, limit=2, after="z", key=str) == ([], False)
