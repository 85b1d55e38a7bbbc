"""Judging real processes by the emulator's log."""

from __future__ import annotations

import math

import pytest

from contracts.ids import ModelId
from simulator.replay import HotTimes, LogLine, Sent, judge

A, B = ModelId("a"), ModelId("b")


def line(kind, at_s, name=A, request_id=None):
    return LogLine(kind=kind, at_s=at_s, model=name, request_id=request_id)


def sent(request_id, at_s, *, name=A, due_s=None, ended_s=None, status: int | None = 200):
    return Sent(
        request_id=request_id,
        model=name,
        due_s=at_s if due_s is None else due_s,
        sent_s=at_s,
        ended_s=at_s + 5.0 if ended_s is None else ended_s,
        status=status,
    )


def judged(requests, log, *, from_s=0.0, until_s=1000.0, slo_s=2.0, prefetches=0, wasted=0):
    return judge(
        "headstart",
        requests,
        log,
        from_s=from_s,
        until_s=until_s,
        slo_s=slo_s,
        prefetches=prefetches,
        wasted_prefetches=wasted,
    )


class TestLogLine:
    def test_from_json(self):
        found = LogLine.parse(
            {"kind": "request_started", "at_s": 3, "model": "a", "request_id": "r1", "more": 1}
        )
        assert found == line("request_started", 3.0, A, "r1")

    def test_without_a_request(self):
        found = LogLine.parse({"kind": "load_ended", "at_s": "3.5", "model": "a"})
        assert found == line("load_ended", 3.5)
        assert LogLine.parse({"kind": "x", "at_s": 1, "model": "a", "request_id": None}) == line(
            "x", 1.0
        )


class TestHotTimes:
    LOG = (
        line("load_started", 5.0),
        line("load_ended", 10.0),
        line("unloaded", 20.0),
        line("load_started", 25.0),
        line("load_ended", 30.0),
    )

    @pytest.mark.parametrize(
        ("at_s", "hot"),
        [(4.0, False), (9.9, False), (10.0, True), (19.9, True), (20.0, False), (30.0, True)],
    )
    def test_from_the_end_of_a_load_until_the_unload(self, at_s, hot):
        assert HotTimes(self.LOG).at(A, at_s) is hot

    @pytest.mark.parametrize("kind", ["load_failed", "load_cancelled"])
    def test_a_load_that_did_not_end_well_makes_nothing_hot(self, kind):
        assert not HotTimes([line("load_started", 5.0), line(kind, 8.0)]).at(A, 9.0)

    def test_each_model_has_its_own_times(self):
        assert not HotTimes(self.LOG).at(B, 15.0)


class TestJudge:
    LOG = (
        line("load_started", 100.0),
        line("load_ended", 108.0),
        line("request_started", 108.5, request_id="r1"),
        line("request_started", 120.0, request_id="r2"),
    )

    def test_a_wait_runs_from_the_sending_to_the_start_of_service(self):
        found = judged([sent("r1", 100.0), sent("r2", 119.0)], self.LOG).row
        assert (found.policy, found.n, found.cold, found.slo) == ("headstart", 2, 0.5, 0.5)
        assert found.mean_wait_s == pytest.approx((8.5 + 1.0) / 2)
        assert found.loads == 1

    def test_a_log_that_is_out_of_order_is_put_in_order(self):
        log = (*self.LOG, line("unloaded", 125.0))
        requests = [sent("r1", 100.0), sent("r2", 119.0), sent("r3", 130.0)]
        assert judged(requests, log).row.cold == pytest.approx(2 / 3)
        assert judged(requests, reversed(log)) == judged(requests, log)

    def test_a_service_that_began_before_the_client_looked_at_its_clock_waited_nothing(self):
        assert judged([sent("r1", 108.6)], self.LOG).row.mean_wait_s == 0.0

    @pytest.mark.parametrize("status", [None, 503, 404, 302])
    def test_a_failed_request_waited_until_its_end_and_misses_its_target(self, status):
        found = judged([sent("r1", 108.0, ended_s=108.4, status=status)], self.LOG)
        assert found.failed == 1
        assert found.row.slo == 0.0
        assert found.row.mean_wait_s == pytest.approx(0.4)

    def test_an_answer_that_no_service_stands_behind_misses_its_target(self):
        found = judged([sent("r9", 110.0, ended_s=110.1)], self.LOG)
        assert (found.failed, found.row.slo, found.row.n) == (0, 0.0, 1)

    def test_only_what_was_due_in_the_measured_part_counts(self):
        requests = [
            sent("r1", 100.0, due_s=99.0),
            sent("r2", 120.0, due_s=119.0),
            sent("r3", 130.0),
        ]
        found = judged(requests, self.LOG, from_s=110.0, until_s=130.0)
        assert found.row.n == 1
        assert found.row.loads == 0
        assert judged(requests, self.LOG, from_s=99.0, until_s=101.0).row.loads == 1

    def test_jitter_is_how_late_requests_were_sent(self):
        requests = [sent(f"r{n}", 10.0 + n + n / 100, due_s=10.0 + n) for n in range(10)]
        assert judged(requests, ()).jitter_p99_s == pytest.approx(0.09)

    def test_prefetches_are_the_controllers_own_count(self):
        found = judged([sent("r1", 100.0)], self.LOG, prefetches=5, wasted=2).row
        assert (found.prefetches, found.wasted_prefetches) == (5, 2)

    def test_nobody_came(self):
        found = judged([], self.LOG)
        assert (found.row.n, found.failed) == (0, 0)
        assert math.isnan(found.row.slo)
        assert math.isnan(found.jitter_p99_s)
