"""The file that says which models an emulator has."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.errors import Invalid
from emulator.models import EmulatedModel, load_yaml, parse_models, read_list, read_models


def test_a_model_needs_only_its_name():
    (model,) = parse_models([{"name": "a"}])
    assert model == EmulatedModel(name="a")
    assert model.usecases == ("chat", "completion")
    assert model.spec().footprint_bytes == model.footprint_bytes == 1000 * 1024**2


def test_models_come_as_a_list_a_section_or_a_mapping():
    expected = parse_models([{"name": "a", "load_s": 3}, {"name": "b"}])
    assert parse_models({"models": [{"name": "a", "load_s": 3}, {"name": "b"}]}) == expected
    assert parse_models({"a": {"load_s": 3}, "b": None}) == expected
    assert parse_models({"models": {"a": {"load_s": 3}, "b": {}}}) == expected


def test_spellings_and_unknown_keys():
    (model,) = parse_models(
        [{"name": "a", "load-s": 2.5, "aliases": "x", "scheduling_profile": {"p": 1}}]
    )
    assert model.load_s == 2.5
    assert model.aliases == ("x",)
    assert model.extra == {"scheduling_profile": {"p": 1}}


def test_its_own_yaml_has_what_localai_would_have():
    (model,) = parse_models(
        [{"name": "a", "pinned": True, "disabled": True, "weights": False, "note": "kept"}]
    )
    config = load_yaml(model.to_yaml())
    assert config["name"] == "a"
    assert config["parameters"] == {"model": "a"}
    assert (config["pinned"], config["disabled"], config["note"]) == (True, True, "kept")
    assert config["known_usecases"] == ["FLAG_CHAT", "FLAG_COMPLETION"]
    assert load_yaml(EmulatedModel(name="b").to_yaml())["parameters"] == {"model": "b.gguf"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "expected a list of models"),
        ("text", "expected a list of models"),
        ([{"load_s": 1}], "each model needs a name"),
        ([7], "each model needs a name"),
        ([{"name": "a"}, {"name": "b", "aliases": ["a"]}], "a: each name and alias may stand once"),
        ([{"name": "a", "kind": "oracle"}], 'kind = "oracle": must be one of chat'),
        ([{"name": "a", "load_s": "2"}], "model a: load_s = '2': must be a number"),
        ([{"name": "a", "parallel": 1.5}], "parallel = 1.5: must be a whole number"),
        ([{"name": "a", "parallel": True}], "parallel = True: must be a whole number"),
        ([{"name": "a", "pinned": 1}], "pinned = 1: must be true or false"),
        ([{"name": "a", "parallel": 0}], "parallel = 0: must be at least 1"),
        ([{"name": "a", "load_s": -1}], "load_s = -1: must be at least 0"),
        ([{"name": "a", "tokens_per_s": 0}], "tokens_per_s = 0: must be above 0"),
        ([{"name": "a", "aliases": [1]}], "aliases: must be a list of names"),
    ],
)
def test_what_makes_no_sense_is_said(document, says):
    with pytest.raises(Invalid, match=says):
        parse_models(document)


def test_files(tmp_path: Path):
    path = tmp_path / "models.json"
    path.write_text('{"models": [{"name": "a"}]}')
    assert read_models(path) == (EmulatedModel(name="a"),)
    path.write_text("{")
    for read in (read_models, read_list):
        with pytest.raises(Invalid, match=r"models\.json"):
            read(path)
        with pytest.raises(Invalid, match="no such file"):
            read(tmp_path / "none")
    path.write_text("[1]")
    with pytest.raises(Invalid, match="expected a list of objects"):
        read_list(path)
    path.write_text('[{"kind": "x"}]')
    assert read_list(path) == ({"kind": "x"},)


@pytest.mark.parametrize("read", [read_models, read_list])
@pytest.mark.parametrize(
    "content",
    [None, b"**Models are ready**", b"models: [\n", b"\xff\xfe", b"", b"5", b"- 1\n", b"a: 5"],
)
def test_a_file_that_makes_no_sense_is_one_line_with_its_name(tmp_path: Path, read, content):
    path = tmp_path / "models.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Invalid) as caught:
        read(path)
    assert str(caught.value).count(str(path)) == 1
    assert "\n" not in str(caught.value)
