"""Key figures for Prometheus: valid as OpenMetrics, and absent where nothing is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from api.control.board import Board
from api.control.kpi_metrics import kpi_families
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.readings import ProbeReading
from contracts.world import NodeStatus, PlanningTally, QueueStatus, WorldSnapshot
from tests.recorded_scrape import control_scrape, gateway_scrape


def samples(board: Board) -> dict[str, float]:
    families = kpi_families(board, [ModelId("a")], 1000.0)
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize("scrape", [control_scrape, gateway_scrape])
def test_a_scrape_is_valid_openmetrics(scrape: Callable[..., str]):
    found = list(text_string_to_metric_families(scrape(openmetrics=True)))
    assert len(found) > 20
    assert {"counter", "gauge", "histogram"} == {family.type for family in found}


def test_where_nothing_is_known_there_is_no_series():
    found = samples(Board(default_target_s=2.0))
    for name in ("apdex_ratio", "success_ratio", "satisfaction_ratio", "in_flight_mean", "workers"):
        assert not [key for key in found if key.startswith(f"headstart_{name}")]
    # What is counted begins at 0, so that the first increase is seen.
    assert found["headstart_priority_violations_total[('class', 'batch')]"] == 0.0


def test_what_a_node_does_not_tell_is_left_out():
    board = Board(default_target_s=2.0)
    reading = ProbeReading(at_s=0.0, load_average_15min=1.5)
    nodes = {
        NodeId("told"): NodeStatus(node=NodeId("told"), reading=reading),
        NodeId("silent"): NodeStatus(node=NodeId("silent")),
    }
    board.world = WorldSnapshot(
        taken_at_s=0.0,
        nodes=nodes,
        queues=(QueueStatus(priority=PriorityClass.BATCH, waiting=1, oldest_wait_s=2.0),),
        planning=PlanningTally(runs=2, total_s=0.5),
    )
    found = samples(board)
    assert found["headstart_node_load_average_15min[('node', 'told')]"] == 1.5
    assert not [key for key in found if "gpu_utilization" in key or "silent" in key]
    assert found["headstart_queue_oldest_wait_seconds[('class', 'batch')]"] == 2.0
    assert "headstart_queue_capacity_requests[('class', 'batch')]" not in found
    assert found["headstart_plan_runs_total[]"] == 2.0
    assert "headstart_plan_p95_seconds[]" not in found
