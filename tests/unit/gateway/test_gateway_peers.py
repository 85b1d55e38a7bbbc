"""Several gateways keep a bound together: what each may use, and what it costs to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.peers import MAX_PEERS, Peers
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId
from contracts.messages import GatewayBeat

A = ModelId("a")


def beat(name: str = "g2", *, running: int = 0, queued: int = 0, leaving: bool = False, **counts):
    return GatewayBeat(
        gateway=GatewayId(name),
        at_s=1.0,
        in_flight={A: running} if running else {},
        queued={PriorityClass.BATCH: queued} if queued else {},
        leaving=leaving,
        admitted=counts,
    )


@pytest.fixture
def peers() -> Peers:
    return Peers(GatewayId("g1"))


def test_alone_a_gateway_uses_the_whole_bound(peers: Peers):
    peers.hear(beat("g1", running=3), 0.0)
    assert peers.count == 0
    assert peers.slots(A, 4) == 4
    assert peers.places(PriorityClass.BATCH, 50) == 50


@pytest.mark.parametrize(
    ("bound", "others", "here"), [(4, 0, 4), (4, 1, 3), (4, 4, 2), (5, 9, 2), (1, 1, 1), (0, 3, 0)]
)
def test_of_what_the_others_leave_never_less_than_its_share(peers, bound, others, here):
    peers.hear(beat(running=others, queued=others), 0.0)
    assert peers.slots(A, bound) == here
    assert peers.places(PriorityClass.BATCH, bound) == here


def test_who_leaves_or_falls_silent_counts_no_more(peers: Peers):
    peers.hear(beat("g2", running=2), 0.0)
    peers.hear(beat("g3", running=2), 2.0)
    assert peers.slots(A, 9) == 5
    peers.forget_silent(2.5)
    assert peers.count == 2
    peers.forget_silent(3.5)
    assert (peers.count, peers.slots(A, 9)) == (1, 7)
    peers.hear(beat("g3", leaving=True), 3.6)
    assert peers.slots(A, 9) == 9


def test_what_others_let_in_is_told_once(peers: Peers):
    peers.hear(beat(team=5), 0.0)
    assert peers.take_admitted("team") == 0
    peers.hear(beat(team=8), 1.0)
    peers.hear(beat(team=9, other=2), 2.0)
    assert peers.take_admitted("team") == 4
    assert peers.take_admitted("team") == 0
    peers.keep_keys({"team": 1})
    assert peers.take_admitted("other") == 0


def test_a_gateway_that_counts_anew_takes_nothing_back(peers: Peers):
    peers.hear(beat(team=8), 0.0)
    peers.hear(beat(team=1), 1.0)
    assert peers.take_admitted("team") == 0


def test_strangers_beyond_the_bound_are_not_heard(peers: Peers):
    for number in range(MAX_PEERS + 5):
        peers.hear(beat(f"x{number}"), 0.0)
    assert peers.count == MAX_PEERS


@given(
    bound=st.integers(1, 40),
    moves=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=120),
)
def test_once_all_have_spoken_no_more_run_than_the_bound_or_the_shares(bound, moves):
    """Each begins what it may, and all beat after each move: the bound is kept but for shares."""
    names = [GatewayId(f"g{n}") for n in range(3)]
    all_of_them = {name: Peers(name) for name in names}
    running = dict.fromkeys(names, 0)
    for name in names:
        for peers in all_of_them.values():
            peers.hear(beat(name), 0.0)
    for who, begins in moves:
        name = names[who]
        if begins and running[name] < all_of_them[name].slots(A, bound):
            running[name] += 1
        elif not begins and running[name]:
            running[name] -= 1
        for peers in all_of_them.values():
            peers.hear(beat(name, running=running[name]), 0.0)
    assert sum(running.values()) <= bound + 2 * max(1, bound // 3)
