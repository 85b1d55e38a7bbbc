"""What callers are told about their keys, in each API's shape."""

from __future__ import annotations

import json

import pytest

from api.gateway.detect import ApiStyle
from api.gateway.problems import error_body, permission_denied, rate_limited, unauthorized


@pytest.mark.parametrize("style", ApiStyle)
@pytest.mark.parametrize(
    ("problem", "status", "type_", "code"),
    [
        (unauthorized(), 401, "invalid_request_error", "invalid_api_key"),
        (
            permission_denied("no", code="model_not_allowed", param="model"),
            403,
            "permission_denied",
            "model_not_allowed",
        ),
        (rate_limited(120.0, 0.4), 429, "rate_limited", "rate_limited"),
    ],
)
def test_each_api_gets_its_own_shape(style, problem, status, type_, code):
    assert problem.status == status
    body = json.loads(error_body(problem, style))
    assert body["error"]["type"] == type_
    if style is ApiStyle.ANTHROPIC:
        assert body["type"] == "error"
    else:
        assert body["error"]["code"] == code


def test_a_rate_says_its_limit_and_when_there_is_room_again():
    problem = rate_limited(0.5, 31.2)
    assert dict(problem.headers) == {
        b"x-ratelimit-limit-requests": b"0",
        b"x-ratelimit-remaining-requests": b"0",
        b"x-ratelimit-reset-requests": b"32s",
    }
    assert "0.5 requests in a minute" in problem.message
    assert problem.retry_after_s == 31.2
