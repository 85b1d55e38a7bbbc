"""Key figures as they are shown: what is divided by what."""

from __future__ import annotations

import pytest

from api.control.board import Board
from api.control.kpi_views import kpi_view
from api.control.kpis.rings import Window
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot
from tests.kpi_events import GB, NODE, A, done, received, sent


@pytest.mark.parametrize(("side_by_side", "mean"), [(1, 0.1), (4, 0.4), (20, 2.0)])
def test_requests_side_by_side_are_a_mean_number_and_no_share(side_by_side: int, mean: float):
    board = Board(default_target_s=2.0)
    hot = ModelStatus(
        model=A, node=NODE, residency=Residency.HOT, residency_since_s=0.0, footprint_bytes=GB
    )
    node = NodeStatus(node=NODE, alive=True, memory_total_bytes=10 * GB)
    board.kpis.saw(WorldSnapshot(taken_at_s=0.0, nodes={NODE: node}, models={A: hot}), 100.0)
    for number in range(side_by_side):
        name = f"r{number}"
        for event in (received(name, 50.0), sent(name, 50.0), done(name, 60.0, 10.0)):
            board.kpis.observe(event)
    cost = kpi_view(board, Window.HOUR, 100.0, A).cost
    assert cost.resident_s == 100.0
    assert cost.in_flight_mean == pytest.approx(mean)
