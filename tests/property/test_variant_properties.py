"""Names that change and nothing else, and plans that give no GPU's place up for a CPU."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from api.gateway.fallback import MIN_GAIN_S, Prospect, choose
from api.gateway.renaming import NameFilter, find_name, renamed
from contracts.ids import ModelId
from contracts.memory import PlaceId, PlaceKind, PlaceStatus
from contracts.plan import LoadModel, PlannerState, UnloadModel
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.planner import plan
from controller.wish_list import with_wish
from tests.worlds import MIB, NODE, config, model, world

SERVED = "llama--headstart-cpu"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(SERVED) | st.just("model"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(
    st.dictionaries(st.text().filter(lambda key: key != "model"), json_values, max_size=5),
    st.text(),
    st.text(),
    st.booleans(),
    st.integers(0, 5),
)
def test_a_body_says_another_name_and_is_else_what_it_was(fields, name, other, ascii_, place):
    items = list(fields.items())
    items.insert(min(place, len(items)), ("model", name))
    body = json.dumps(dict(items), ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    found = find_name(body)
    assert found is not None
    assert json.loads(body[found.start : found.end]) == name
    changed = b"".join(bytes(piece) for piece in renamed(body, found, other))
    assert changed[: found.start] == body[: found.start]
    assert changed[len(changed) - len(body) + found.end :] == body[found.end :]
    assert json.loads(changed) == {**json.loads(body), "model": other}


@given(st.binary())
def test_no_bytes_make_it_raise(body):
    find_name(body)


@given(json_values, st.lists(st.integers(1, 30), min_size=1, max_size=30))
def test_an_answer_is_renamed_the_same_however_it_is_cut(value, cuts):
    text = json.dumps({"a": value, "model": SERVED, "b": {"model": SERVED}, "c": value})
    data = text.encode("utf-8", "surrogatepass")
    names = NameFilter(SERVED, b'"llama"')
    said, at = [], 0
    for cut in [*cuts, len(data)]:
        said.append(names.feed(data[at : at + cut]))
        at += cut
    whole = b"".join([*said, names.feed(data[at:]), names.end()])
    at_once = NameFilter(SERVED, b'"llama"')
    assert whole == at_once.feed(data) + at_once.end()
    told = json.loads(whole)
    assert (told["model"], told["b"]["model"]) == ("llama", "llama")


seconds = st.floats(0.0, 1e6) | st.just(float("inf"))


@given(seconds, seconds, st.lists(st.tuples(seconds, st.floats(0.0, 1e6)), max_size=5))
def test_nobody_is_sent_where_it_takes_longer(wait_s, service_s, others):
    own = Prospect(model=ModelId("own"), wait_s=wait_s, service_s=min(service_s, 1e6))
    rungs = [
        Prospect(model=ModelId(f"r{number}"), wait_s=rung_wait_s, service_s=rung_service_s)
        for number, (rung_wait_s, rung_service_s) in enumerate(others)
    ]
    chosen = choose(own, rungs)
    if chosen is not own:
        assert chosen.total_s + MIN_GAIN_S < own.total_s
    assert all(chosen.total_s <= rung.total_s + MIN_GAIN_S for rung in rungs)


@st.composite
def towns(draw: st.DrawFn) -> WorldSnapshot:
    """A card and host memory with models on both, some of them asked for."""

    def status(number: int) -> ModelStatus:
        residency = draw(st.sampled_from([Residency.HOT, Residency.COLD, Residency.LOADING]))
        is_hot = residency is Residency.HOT
        waits = residency is Residency.COLD and draw(st.booleans())
        return model(
            ModelId(f"m{number}"),
            residency,
            mb=draw(st.integers(1, 30)),
            in_flight=draw(st.integers(0, 2)) if is_hot else 0,
            waiting=int(waits),
            wanted_since_s=draw(st.floats(0.0, 100.0)) if waits else None,
            on_host=draw(st.booleans()),
        )

    models = [status(number) for number in range(draw(st.integers(1, 6)))]
    state = world(*models, model_limit=draw(st.none() | st.integers(1, 4)))
    places = (
        PlaceStatus(place=PlaceId("GPU-1"), kind=PlaceKind.GPU, total_bytes=30 * MIB),
        PlaceStatus(place=PlaceId("host"), kind=PlaceKind.HOST, total_bytes=30 * MIB),
    )
    node = replace(state.nodes[NODE], places=places, accelerator="cuda")
    state = replace(state, nodes={NODE: node})
    for name in draw(st.sets(st.sampled_from([one.model for one in models]))):
        state = with_wish(state, name, 130.0)
    return state


@given(towns(), st.sampled_from(["lru", "headstart", "gdsf"]))
def test_no_place_on_a_gpu_is_given_up_for_a_model_on_cpus(state, policy):
    result = plan(world=state, forecasts={}, state=PlannerState(), config=config(policy))
    loads = {a.model: a for a in result.plan.actions if isinstance(a, LoadModel)}
    unloads = {a.model for a in result.plan.actions if isinstance(a, UnloadModel)}
    for name, load in loads.items():
        if state.models[name].on_host:
            assert all(state.models[victim].on_host for victim in load.after)
    held = sum(
        status.footprint_bytes or 0
        for name, status in state.models.items()
        if status.on_host
        and (name in loads or (status.residency is not Residency.COLD and name not in unloads))
    )
    before = sum(
        status.footprint_bytes or 0
        for status in state.models.values()
        if status.on_host and status.residency is not Residency.COLD
    )
    assert held <= max(30 * MIB, before)
