from __future__ import annotations

import pytest

from contracts.ids import ModelId
from contracts.variants import Fallback, Ladder, is_made, made_name, may_fall_back

ALLOW, ASK, DENY = Fallback.ALLOW, Fallback.ASK, Fallback.DENY


def test_made_names_are_told_from_all_others():
    assert made_name("org/llama", "cpu") == "org_llama--headstart-cpu"
    assert is_made(made_name("llama", "gpu12"))
    assert not is_made("llama")


@pytest.mark.parametrize(
    ("model", "key", "asked", "may"),
    [
        (ALLOW, None, None, True),
        (ALLOW, None, True, True),
        (ALLOW, None, False, False),
        (ALLOW, ALLOW, None, True),
        (ALLOW, ASK, None, False),
        (ALLOW, ASK, True, True),
        (ASK, None, None, False),
        (ASK, ALLOW, None, False),
        (ASK, ALLOW, True, True),
        (DENY, ALLOW, True, False),
        (ALLOW, DENY, True, False),
    ],
)
def test_model_key_and_caller_each_may_refuse(model, key, asked, may):
    ladder = Ladder(model=ModelId("llama"), rungs=(), fallback=model)
    assert may_fall_back(ladder, key=key, asked=asked) is may
