"""Which models a request names, and who may use them."""

from __future__ import annotations

import pytest

from contracts.errors import Invalid
from contracts.model_names import check_one_model, may_use


@pytest.mark.parametrize("field", ["MODEL", "Model", "model_id", "MODEL_ID"])
def test_a_second_name_for_the_model_is_refused(field: str):
    with pytest.raises(Invalid, match=field):
        check_one_model({"model": "a", field: "b"})


def test_one_name_is_taken():
    check_one_model({"model": "a", "models": ["b"], "messages": []})
    check_one_model({})


@pytest.mark.parametrize(
    ("patterns", "model", "fits"),
    [
        ((), "any/thing", True),
        (("chat-*",), "chat-a/b", True),
        (("chat-*",), "Chat-a", False),
        (("chat-?",), "chat-ab", False),
        (("a[b]c",), "a[b]c", True),
        (("a[b]c",), "abc", False),
        (("x", "y*"), "yes", True),
        (("a",), "a\nb", False),
    ],
)
def test_patterns_are_stars_and_question_marks_alone(patterns, model, fits):
    assert may_use(patterns, model) is fits
