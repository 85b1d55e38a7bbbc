"""What needs no key, as with LocalAI alone."""

from __future__ import annotations

import pytest

from api.gateway.public_paths import is_public, needs_no_key


@pytest.mark.parametrize(
    ("method", "path", "public"),
    [
        ("GET", "/", True),
        ("HEAD", "/", True),
        ("GET", "/app/models/edit", True),
        ("GET", "/assets/index.js", True),
        ("GET", "/api/instructions/chat", True),
        ("POST", "/api/auth/login", True),
        ("GET", "/api/auth/login", False),
        ("POST", "/api/branding", False),
        ("GET", "/api/auth/keys", False),
        ("GET", "/assets/../api/settings", False),
        ("GET", "/assets/..\\api", False),
        ("GET", "/appendix", False),
        ("DELETE", "/static/x", False),
        ("GET", "/v1/models", False),
    ],
)
def test_pages_before_the_sign_in(method, path, public):
    assert is_public(method, path) is public
    assert needs_no_key(method, path, is_preflight=False) is public


def test_probes_and_preflight():
    assert needs_no_key("GET", "/healthz", is_preflight=False)
    assert not is_public("GET", "/healthz")
    assert needs_no_key("OPTIONS", "/v1/models", is_preflight=True)
    assert not needs_no_key("OPTIONS", "/v1/models", is_preflight=False)
