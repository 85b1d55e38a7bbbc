"""Guesses of keys: how many are free, whom they count for, and how long one waits."""

from __future__ import annotations

import pytest

from api.control.guessing import (
    FREE_GUESSES,
    FREE_GUESSES_OF_A_PROXY,
    MAX_ADDRESSES,
    WINDOW_S,
    GuessBook,
)

HERE, THERE = "203.0.113.5", "198.51.100.7"


def guessed(book: GuessBook, count: int, peer: str = HERE, said: str | None = None, at_s=0.0):
    for number in range(count):
        book.note_wrong(peer, said, f"{at_s}-{number}".encode(), at_s)


def test_the_first_guesses_are_free_and_then_one_waits_a_minute():
    book = GuessBook()
    guessed(book, FREE_GUESSES - 1)
    assert book.wait_s(HERE, None, 0.0) == 0.0
    book.note_wrong(HERE, None, b"last", 20.0)
    assert book.wait_s(HERE, None, 20.0) == WINDOW_S - 20.0
    assert book.wait_s(THERE, None, 20.0) == 0.0
    assert book.wait_s(HERE, None, WINDOW_S) == 0.0


def test_the_same_wrong_key_again_is_no_new_guess():
    book = GuessBook()
    for _ in range(100):
        book.note_wrong(HERE, None, b"mistyped", 0.0)
    assert book.wait_s(HERE, None, 0.0) == 0.0


def test_one_who_never_stops_is_let_in_no_more_often_than_the_rule_says():
    book, taken = GuessBook(), 0
    for second in range(600):
        if book.wait_s(HERE, None, float(second)) == 0.0:
            book.note_wrong(HERE, None, f"{second}".encode(), float(second))
            taken += 1
    assert taken <= FREE_GUESSES * 10


@pytest.mark.parametrize(
    ("one", "other"),
    [("2001:db8::1", "2001:db8::ffff:1"), (HERE, f"::ffff:{HERE}"), ("odd", "odd")],
)
def test_addresses_of_one_hand_are_one(one: str, other: str):
    book = GuessBook()
    guessed(book, FREE_GUESSES, one)
    assert book.wait_s(other, None, 0.0) > 0.0


def test_whom_a_proxy_speaks_for_are_told_apart():
    book = GuessBook()
    guessed(book, FREE_GUESSES, "10.0.0.1", f"9.9.9.9, {HERE}")
    assert book.wait_s("10.0.0.1", HERE, 0.0) > 0.0
    assert book.wait_s("10.0.0.1", f"{HERE}, {THERE}", 0.0) == 0.0
    assert book.wait_s("10.0.0.1", None, 0.0) == 0.0


def test_all_together_that_a_proxy_speaks_for_have_a_bound_too():
    book = GuessBook()
    for number in range(FREE_GUESSES_OF_A_PROXY):
        book.note_wrong("127.0.0.1", f"198.51.{number}.1", f"{number}".encode(), 0.0)
    assert book.wait_s("127.0.0.1", THERE, 0.0) > 0.0


def test_who_comes_from_the_internet_gains_nothing_by_what_it_says():
    book = GuessBook()
    for number in range(FREE_GUESSES):
        book.note_wrong("8.8.8.8", f"198.51.100.{number}", f"{number}".encode(), 0.0)
    assert book.wait_s("8.8.8.8", "192.0.2.1", 0.0) > 0.0


def test_the_table_is_bounded_and_what_goes_is_counted():
    book = GuessBook()
    for number in range(MAX_ADDRESSES + 3):
        book.note_wrong(f"8.{number // 250}.{number % 250}.1", None, b"key", 0.0)
    assert book.forgotten == 3
    guessed(book, FREE_GUESSES - 1, "8.0.0.1")
    assert book.wait_s("8.0.0.1", None, 0.0) == 0.0, "its guess from before is forgotten"


def test_an_address_keeps_no_more_guesses_than_it_is_given():
    book = GuessBook()
    guessed(book, 1_000)
    assert {len(guesses) for guesses in book._seen.values()} == {FREE_GUESSES}


def test_what_a_caller_says_counts_only_of_a_private_address():
    book = GuessBook()
    guessed(book, FREE_GUESSES, "a-unix-socket", "1.2.3.4")
    assert book.wait_s("a-unix-socket", "4.3.2.1", 0.0) > 0.0
