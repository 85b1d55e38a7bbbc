"""``headstart backtest`` from the command line."""

from __future__ import annotations

import json
import os
import sys
from xml.etree import ElementTree as ET

# Before scikit-learn is loaded: its threads would wait for each other on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from adapters.codec import encode
from cli.__main__ import main
from contracts.events import PriorityClass, RequestReceived
from contracts.ids import ModelId, RequestId
from predictor.backtest_history import sampled

KEYS = [
    *("workload", "method", "horizon_s", "scaled_pinball", "rmsse", "coverage_80", "brier"),
    *("reliability_max_error", "coverage_80_closed", "mute_ratio", "looks"),
]
LENGTH_S = 9000


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = sorted((at_s, model) for n, model in enumerate("abc")
                  for at_s in range(0, LENGTH_S, 170 + 90 * n))  # fmt: skip
    path.write_text("\n".join(["t_s,model,service_s", *(f"{t},{m},2" for t, m in rows)]) + "\n")
    return path


@pytest.fixture
def headstart(monkeypatch, capsys):
    """Run the command line; exit status, standard output and standard error."""

    def headstart(*arguments):
        monkeypatch.setattr(sys, "argv", ["headstart", "backtest", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return headstart


def test_every_method_has_a_row_at_every_horizon(headstart, trace, tmp_path):
    status, out, err = headstart("--trace", trace, "--json", "--plot", tmp_path / "plots")
    assert status == 0
    assert out.count("\n") == 1
    found = json.loads(out)
    assert list(found) == ["rows", "seed"]
    assert all(list(row) == KEYS for row in found["rows"])
    methods = {row["method"] for row in found["rows"]}
    assert {"mixture", "river_linear", "naive_seasonal", "own_gaps", "base_rate"} <= methods
    assert {row["horizon_s"] for row in found["rows"]} == {60.0, 300.0, 900.0, 3600.0}
    unit = [row for row in found["rows"] if row["method"] == "naive_seasonal"]
    assert all(row["scaled_pinball"] in (1.0, None) for row in unit)
    assert "csv: " in err
    for kind in ("bands", "reliability"):
        picture = ET.parse(tmp_path / "plots" / f"csv-{kind}.svg").getroot()
        assert picture.tag.endswith("svg")
        assert len(picture) > 5


def test_people_see_a_table_per_horizon(headstart, trace):
    chosen = ("--method", "mixture,naive_seasonal", "--horizon", "300", "--models", "a,b")
    status, out, _ = headstart("--trace", trace, *chosen)
    assert status == 0
    assert "csv: within 300 s" in out
    assert "within 60 s" not in out
    assert "river_linear" not in out
    assert "seasonal naive = 1" in out


def test_a_recorded_log_is_judged_and_its_challenger_too(headstart, tmp_path):
    log = tmp_path / "log.jsonl"
    events = [
        RequestReceived(
            event_id=f"{model}{at_s}",
            at_s=1_700_000_000.0 + at_s,
            source="gateway",
            request_id=RequestId(f"{model}{at_s}"),
            model=ModelId(model),
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="",
            stream=False,
        )
        for model in "ab"
        for at_s in range(0, LENGTH_S, 300)
    ]
    log.write_bytes(b"".join(encode(event) + b"\n" for event in events) + b"{}\n")
    status, out, err = headstart("--log", log, "--boosted", "--json", "--horizon", "60")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {row["workload"] for row in rows} == {"events"}
    boosted = next(row for row in rows if row["method"] == "boosted")
    assert boosted["mute_ratio"] == 1.0  # too short to train anything on
    assert "1 records could not be read" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name either --trace FILE"),
        (("--trace", "x.csv", "--events"), "name either --trace FILE"),
        (("--trace", "TRACE", "--workload", "csv,csv"), "names 2 workloads for 1 traces"),
        (("--trace", "TRACE", "--horizon", "30"), "there are 60, 300, 900 and 3600"),
        (("--trace", "TRACE", "--models", "z"), "no request names it"),
        (("--trace", "TRACE", "--plot", "TRACE"), "--plot"),
        (("--trace", "TRACE", "--days", "0.06", "--method", "oracle"), "there are mixture"),
        (("--events",), "no Redis is configured"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(headstart, trace, monkeypatch, arguments, said):
    for variable in ("REDIS_URL", "HEADSTART_REDIS_URL", "HEADSTART_REDIS__URL"):
        monkeypatch.delenv(variable, raising=False)
    status, _, err = headstart(*(trace if word == "TRACE" else word for word in arguments))
    assert status == 2
    assert said in err.splitlines()[-1]


def test_a_sample_is_the_same_each_time():
    names = [ModelId(f"m{n}") for n in range(50)]
    assert sampled(names, 10) == sampled(reversed(names), 10)
    assert len(sampled(names, 10)) == 10
    assert sampled(names[:3], 10) == set(names[:3])
