"""Who publishes forecasts, as it is shown: on the board, in metrics, by the doctor."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric

from api.control.board import Board
from api.control.predictor_metrics import predictor_metrics
from cli.checkup.findings import Verdict
from cli.checkup.predictors import judge_predictors
from contracts.predictors import PredictorBeat, Standing, present

NOW_S = 1_000.0
LONG_AGO_S = NOW_S - 60.0


def beat(name: str, standing: Standing, at_s: float = NOW_S, token: int = 0) -> PredictorBeat:
    return PredictorBeat(
        name=name,
        host="h",
        standing=standing,
        at_s=at_s,
        since_s=1.0,
        token=token or None,
        place="1000000-0",
        refused=token,
    )


OWNER = beat("b", Standing.OWNER, token=8)
STOPPED = beat("a", Standing.OWNER, token=7)
STANDBY = beat("c", Standing.STANDBY)
LEARNING = beat("d", Standing.CATCHING_UP)
DEAD = beat("e", Standing.OWNER, at_s=LONG_AGO_S, token=9)


def values(metrics: list[Metric]) -> dict[tuple[str, str], float]:
    return {
        (sample.name, next(iter(sample.labels.values()))): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_one_is_the_owner_also_while_a_stopped_one_says_so_too() -> None:
    found = values(list(predictor_metrics(present((STOPPED, OWNER, STANDBY, DEAD), NOW_S))))

    assert found["headstart_predictor_is_owner", "b"] == 1.0
    assert found["headstart_predictor_is_owner", "a"] == 0.0
    assert found["headstart_predictor_is_owner", "c"] == 0.0
    assert ("headstart_predictor_is_owner", "e") not in found
    assert found["headstart_predictor_refused_writes", "a"] == 7.0
    assert found["headstart_predictors", "standby"] == 1.0


def test_without_an_owner_no_series_is_one() -> None:
    found = values(list(predictor_metrics((LEARNING,))))

    assert found["headstart_predictor_is_owner", "d"] == 0.0
    assert found["headstart_predictors", "owner"] == 0.0


def test_the_owner_is_a_reader_of_the_log_with_a_lag() -> None:
    board = Board(default_target_s=2.0)
    board.log_end, board.predictors = "1002500-0", (OWNER, STANDBY)

    assert board.log_lags_s(NOW_S) == {"predictor": 2.5}
    assert board.living_predictors(NOW_S) == (OWNER, STANDBY)
    assert board.log_lags_s(NOW_S + 100.0) == {}


def test_the_doctor_says_who_publishes_and_who_would_take_over() -> None:
    (well,) = judge_predictors((OWNER, STANDBY, LEARNING), NOW_S)
    (alone,) = judge_predictors((STANDBY, LEARNING), NOW_S)
    (none,) = judge_predictors((DEAD,), NOW_S)

    assert (well.verdict, well.what) == (Verdict.OK, "b publishes, 1 stand by, 1 still learn")
    assert alone.verdict is Verdict.WARN
    assert none.what == "none runs"
