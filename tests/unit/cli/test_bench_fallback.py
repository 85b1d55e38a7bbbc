"""What ``headstart bench fallback`` makes of the answers of one arm."""

from __future__ import annotations

from cli.bench_fallback import MODEL, Answer, figures


def answer(wait_s: float, *, status: int = 200, served_by: str = MODEL) -> Answer:
    decision = "resident" if served_by == MODEL else "cpu_fallback"
    return Answer(
        status=status,
        wait_s=wait_s,
        total_s=wait_s + 2.0,
        served_by=served_by,
        decision=decision,
    )


def test_waits_are_counted_up_to_the_callers_patience():
    answers = [answer(float(second)) for second in range(1, 20)]
    answers.append(answer(500.0, status=503))
    shown = figures(answers, 180.0)
    assert (shown["n"], shown["served"], shown["from_cpu"]) == (20, 19, 0)
    assert (shown["p50_wait_s"], shown["p95_wait_s"]) == (10.0, 19.0)
    assert shown["decisions"] == []
    assert figures([answer(500.0, status=503)], 180.0)["p95_wait_s"] == 180.0


def test_who_was_answered_elsewhere_is_told_with_the_reason():
    shown = figures([answer(1.0), answer(2.0, served_by="chat--headstart-cpu")], 180.0)
    assert (shown["from_cpu"], shown["decisions"]) == (1, ["cpu_fallback"])
    assert shown["p95_total_s"] == 4.0
