"""``headstart simulate`` from the command line."""

from __future__ import annotations

import json
import sys

import pytest

from cli.__main__ import main

KEYS = {
    "policy",
    "n",
    "cold",
    "slo",
    "mean_wait_s",
    "p50_wait_s",
    "p95_wait_s",
    "p99_wait_s",
    "loads",
    "prefetches",
    "wasted_prefetches",
    "capacity_mb",
}
ALL = "localai-lru,lru,idle-timeout,gdsf,belady,oracle,headstart"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{60 * n},{'abc'[n % 3]},2" for n in range(30)]
    path.write_text("\n".join(["t_s,model,service_s", *rows]) + "\n")
    return path


@pytest.fixture
def headstart(monkeypatch, capsys):
    """Run the command line; exit status, standard output and standard error."""

    def headstart(*arguments):
        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return headstart


@pytest.fixture
def simulated(headstart, trace):
    def simulated(*arguments):
        status, out, _ = headstart("simulate", "--trace", trace, "--json", *arguments)
        assert status == 0
        assert out.count("\n") == 1
        return json.loads(out)

    return simulated


def test_a_row_for_each_policy_and_size(simulated):
    found = simulated("--capacity-mb", "12000,20000", "--policy", ALL)
    assert (found["workload"], found["seed"]) == ("csv", None)
    assert [(row["capacity_mb"], row["policy"]) for row in found["rows"]] == [
        (mb, name) for mb in (12000, 20000) for name in ALL.split(",")
    ]
    assert all(row["n"] == 30 for row in found["rows"])
    assert all(row.keys() == KEYS | {"closure"} for row in found["rows"])


def test_closure_needs_both_ends_of_its_scale(simulated):
    rows = simulated("--capacity-mb", "12000", "--policy", "lru,oracle,gdsf")["rows"]
    closures = {row["policy"]: row["closure"] for row in rows}
    assert (closures["lru"], closures["oracle"]) == (0.0, 1.0)
    for policies in ("lru,gdsf", "oracle,gdsf", "headstart"):
        for row in simulated("--capacity-mb", "12000", "--policy", policies)["rows"]:
            assert row.keys() == KEYS


def test_closure_is_null_where_there_is_no_way_to_go(simulated):
    rows = simulated("--capacity-mb", "900000", "--policy", "lru,oracle", "--minutes", "1")["rows"]
    assert [row["closure"] for row in rows] == [None, None]


def test_the_same_twice(simulated):
    arguments = ("--capacity-mb", "12000", "--policy", "headstart,gdsf")
    assert simulated(*arguments) == simulated(*arguments)


def test_a_policy_or_size_named_twice_is_played_once(simulated):
    rows = simulated("--capacity-mb", "12000, 12000", "--policy", "lru, lru")["rows"]
    assert len(rows) == 1


def test_a_part_of_the_trace(simulated):
    found = simulated("--capacity-mb", "12000", "--policy", "lru", "--from", 600, "--minutes", 5)
    assert found["rows"][0]["n"] == 5
    found = simulated("--capacity-mb", "12000", "--policy", "lru", "--from", 600)
    assert found["rows"][0]["n"] == 20


def test_the_predictor_knows_what_was_before_unless_told_otherwise(simulated):
    part = ("--capacity-mb", "12000", "--policy", "headstart", "--from", 1200)
    warm, cold = simulated(*part)["rows"][0], simulated(*part, "--cold")["rows"][0]
    assert warm["prefetches"] > cold["prefetches"]


def test_the_reserve_is_the_products(simulated):
    # two of the three fit, less a fifth only one
    arguments = ("--capacity-mb", "12000", "--policy", "lru,headstart", "--reserve", "0.2")
    free = simulated(*arguments[:4])["rows"]
    tight = simulated(*arguments)["rows"]
    assert tight[0] == free[0]
    assert tight[1] != free[1]


def test_a_table_for_people_and_nothing_else_on_standard_output(headstart, trace):
    status, out, _ = headstart(
        "simulate", "--trace", trace, "--capacity-mb", "12000,20000", "--policy", "lru,oracle"
    )
    assert status == 0
    assert "csv: 30 requests, 12000 MB" in out
    assert "csv: 30 requests, 20000 MB" in out
    lines = [line.split() for line in out.splitlines()]
    headings = ["policy", "cold", "slo", "mean", "s", "p50", "s", "p95", "s", "p99", "s"]
    assert [*headings, "loads", "ahead", "wasted", "closure"] in lines
    assert sum(line[:1] == ["oracle"] for line in lines) == 2
    assert max(map(len, out.splitlines())) <= 80


def test_a_closure_that_is_none_shows_as_a_dash(headstart, trace):
    _, out, _ = headstart(
        *("simulate", "--trace", trace, "--capacity-mb", "900000", "--policy", "lru,oracle"),
        *("--minutes", "1"),
    )
    assert next(line.split()[-1] for line in out.splitlines() if "lru " in line) == "-"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "lfu"), "--policy 'lfu': known are localai-lru, lru, idle-timeout, gdsf"),
        (("--policy", ","), "--policy: is empty"),
        (("--capacity-mb", "12000,x"), "--capacity-mb 'x': must be a whole number of MB above 0"),
        (("--capacity-mb", "0"), "--capacity-mb '0': must be"),
        (("--capacity-mb", "-5"), "--capacity-mb '-5': must be"),
        (("--capacity-mb", "²"), "--capacity-mb '²': must be"),
        (("--capacity-mb", "500"), "capacity of 500 MB does not hold"),
        (("--from", "99999"), "no request from 99999 s; the first is at 0 s, the last at 1740 s"),
        (("--from", "1741", "--minutes", "2"), "no request from 1741 s for 2 min"),
        (("--workload", "servegen"), "line 2: workload servegen needs a column"),
        (("--workload", "other"), "unknown workload 'other'; known are"),
        (("--trace", "/nowhere.csv"), "/nowhere.csv: cannot be read"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(headstart, trace, arguments, message):
    given = {"--trace": trace, "--capacity-mb": "12000", "--policy": "lru"}
    given.update(zip(arguments[::2], arguments[1::2], strict=True))
    status, out, err = headstart("simulate", *(part for pair in given.items() for part in pair))
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_without_a_trace_the_usage_is_shown(headstart):
    status, _, err = headstart("simulate")
    assert status == 2
    assert "--trace" in err
