from __future__ import annotations

from api.gateway.origins import MAX_ORIGINS, OriginBook

APP = b"https://app.example"
STAR = (b"Access-Control-Allow-Origin", b"*")


def test_what_was_allowed_is_repeated():
    book = OriginBook()
    credentials = (b"Access-Control-Allow-Credentials", b"true")
    book.note(APP, [STAR, credentials, (b"Content-Type", b"text/html")])
    assert book.headers_for(APP) == (
        (b"access-control-allow-origin", b"*"),
        (b"access-control-allow-credentials", b"true"),
        (b"vary", b"Origin"),
    )


def test_nobody_else_is_allowed_anything():
    book = OriginBook()
    book.note(APP, [STAR])
    assert book.headers_for(b"https://other.example") == ()
    assert book.headers_for(None) == ()


def test_what_is_not_allowed_any_more_is_forgotten():
    book = OriginBook()
    book.note(APP, [STAR])
    book.note(APP, [(b"vary", b"Origin")])
    assert book.headers_for(APP) == ()


def test_it_is_bounded():
    book = OriginBook()
    for number in range(MAX_ORIGINS + 1):
        book.note(b"https://%d.example" % number, [STAR])
    assert book.headers_for(b"https://0.example") == ()
    assert book.headers_for(b"https://1.example") != ()
    book.note(b"https://" + b"x" * 600, [STAR])
    assert book.headers_for(b"https://" + b"x" * 600) == ()
