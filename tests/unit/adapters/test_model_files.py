"""LocalAI's models folder and its files, read as LocalAI reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters import model_files
from adapters.localai_warming import warm_up
from adapters.model_advice import advice_on
from adapters.model_files import FolderModel, models_in, read_folder
from adapters.model_kinds import modality_of
from adapters.model_profiles import parse_scheduling_profile
from adapters.model_weights import MAX_FILES, WeightsPlace, local_weights, named_files
from adapters.settings_problems import Problems
from adapters.settings_source import read_document
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.modalities import Modality


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(text: str) -> tuple[tuple[FolderModel, ...], list[str]]:
    notes: list[str] = []
    document = read_document(text.encode(), "a.yaml", Problems())
    return models_in(document, "a.yaml", None, notes), notes


def names(models: tuple[FolderModel, ...]) -> list[str]:
    return [model.model for model in models]


@pytest.mark.case("P148")
def test_only_model_files_of_the_folder_itself_are_read(tmp_path: Path):
    files = {
        "a.yaml": "name: a\ngpu_layers: 1\n",
        "a.yaml.bak": "name: a\ngpu_layers: 99\n",
        "a.yaml.bak.123": "name: a\ngpu_layers: 98\n",
        ".hidden.yaml": "name: hidden\n",
        "B.YML": "name: b\n",
        "notes.txt": "name: notes\n",
        "sub__c.yaml": "name: c\n",
    }
    found = read_folder(write(tmp_path, **files))
    assert names(found.models) == ["a", "b"]
    assert found.models[0].config["gpu_layers"] == 1
    assert found.notes == ()


@pytest.mark.case("P151")
def test_a_file_holds_one_model_or_a_list_of_them(tmp_path: Path):
    write(
        tmp_path,
        **{
            "list.yaml": "- {name: one, backend: x}\n- null\n- {backend: y}\n- {name: two}\n",
            "empty.yaml": "",
            "comments.yaml": "# nothing\n# here\n",
        },
    )
    found = read_folder(tmp_path)
    assert names(found.models) == ["one", "two"]
    assert found.notes == ("list.yaml[2]: has no name",)


@pytest.mark.case("P149")
def test_weights_that_lead_out_are_invalid_and_others_have_the_size_that_can_be_known(
    tmp_path: Path,
):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/x.gguf").write_bytes(b"12345")
    (tmp_path / "org/repo").mkdir(parents=True)
    (tmp_path / "org/repo/a.safetensors").write_bytes(b"123")
    paths = (
        "/build/models/x", "../x", "huggingface://o/r/f.gguf", "https://h/f.gguf", "org/none",
        "bundled:silero_vad", "sub/x.gguf", "org/repo",
    )  # fmt: skip
    for number, path in enumerate(paths):
        write(tmp_path, **{f"m{number}.yaml": f"name: m{number}\nparameters: {{model: '{path}'}}"})
    found = read_folder(tmp_path)
    assert [model.is_valid for model in found.models] == [False, False, *[True] * 6]
    assert [model.size_bytes for model in found.models] == [*[None] * 6, 5, 3]
    assert [note for note in found.notes if "LocalAI refuses the model" in note] == [
        'm0.yaml: "m0" names "/build/models/x", which is out of the models folder: LocalAI '
        "refuses the model",
        'm1.yaml: "m1" names "../x", which is out of the models folder: LocalAI refuses the model',
    ]
    profile = parse_scheduling_profile("name: a\nparameters: {model: ../x}\nmmproj: y.gguf\n")
    assert profile.weights == ("y.gguf",)


@pytest.mark.case("config-01")
def test_an_index_of_a_gallery_is_no_model():
    models, notes = read(
        "---\n"
        '- &first\n  name: "family"\n  url: "github:o/r/x.yaml@main"\n'
        "  overrides:\n    parameters:\n      model: f.gguf\n"
        '- <<: *first\n  name: "family:q4"\n'
        '- <<: *first\n  name: "pequeño"\n  last_checked: 2026-01-02\n  A Key: x\n'
    )
    assert models == ()
    assert notes == ["a.yaml: is an index of a gallery with 3 entries, not a model file"]


@pytest.mark.case("config-04")
@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("words: [a]\npairs:\n  - [x, y]\ngroups: {}\n", "a.yaml: is no model"),
        ("config_file: |\n  name: inner\n", "a.yaml: is an index of a gallery with 1 entries"),
        ("backend: x\nengine_args: {a: {b: 1}}\n", "a.yaml: has no name"),
        ("name: ''\nbackend: x\n", "a.yaml: has no name"),
        ("name: 7\nparameters: {}\n", "a.yaml: has no name"),
        ("just text\n", "a.yaml: is no model"),
        ("- [a, b]\n", "a.yaml[0]: is no model"),
    ],
)
def test_files_of_odd_shapes_are_one_note_and_no_model(text: str, note: str):
    models, notes = read(text)
    assert models == ()
    assert len(notes) == 1
    assert notes[0].startswith(note)


@pytest.mark.case("config-05")
@pytest.mark.parametrize(
    ("text", "modality", "path"),
    [
        ("name: gpt-4\nbackend: llama-cpp", Modality.CHAT, "/v1/chat/completions"),
        ("name: text-embedding-1\nembeddings: true", Modality.EMBEDDING, "/v1/embeddings"),
        ("name: order\nreranking: true", Modality.RERANK, "/v1/rerank"),
        ("name: whisper-1\nbackend: whisper", Modality.TRANSCRIPTION, "/v1/audio/transcriptions"),
        ("name: tts-1\nbackend: piper", Modality.SPEECH, "/v1/audio/speech"),
        ("name: silero\nbackend: silero-vad", Modality.VAD, "/vad"),
        (
            "name: sd\nbackend: cuda12-stablediffusion-ggml",
            Modality.IMAGE,
            "/v1/images/generations",
        ),
        ("name: any\nknown_usecases: [FLAG_TTS]", Modality.SPEECH, "/v1/audio/speech"),
        ("name: any\nknown_usecases: [video]", Modality.VIDEO, None),
    ],
)
def test_what_a_model_is_asked_for_is_told_by_different_fields(text, modality, path):
    (model,), notes = read(text)
    assert model.modality is modality
    assert notes == []
    assert model.modality is not None
    request = warm_up(model.model, [_word_of(model.modality)])
    assert (None if request is None else request.path) == path


def _word_of(modality: Modality) -> str:
    return {Modality.SPEECH: "tts", Modality.TRANSCRIPTION: "transcript"}.get(
        modality, modality.value
    )


@pytest.mark.case("config-05")
def test_texts_of_a_model_file_stay_texts_and_weights_by_address_have_no_size(tmp_path: Path):
    write(
        tmp_path,
        **{
            "e.yaml": "name: text-embedding-1\nembeddings: true\n"
            "parameters:\n  model: huggingface://o/r/f.gguf\n"
            "template:\n  chat: |\n    <|im_start|>{{ .Input }}<|im_end|>\n"
            "stopwords: ['<|im_end|>']\n"
            'usage: |\n  curl x -d \'{"model": "y"}\'\n'
        },
    )
    ((model,), notes) = (read_folder(tmp_path).models, read_folder(tmp_path).notes)
    assert (model.model, model.modality, model.size_bytes) == (
        "text-embedding-1", Modality.EMBEDDING, None,
    )  # fmt: skip
    assert model.weights[0].place is WeightsPlace.ELSEWHERE
    assert model.config["template"]["chat"] == "<|im_start|>{{ .Input }}<|im_end|>\n"
    assert notes == ()


@pytest.mark.case("config-07")
def test_a_model_without_gpu_layers_is_on_the_cpu_and_options_may_be_words():
    profile = parse_scheduling_profile(
        "name: img\nbackend: cuda12-stablediffusion-ggml\noptions:\n  - diffusion_model\n"
        '  - "sampler:euler"\ngpu_layers: 0\nthreads: 6\nflash_attention: true\n'
        '# tensor_split: "3,1"\n'
    )
    assert profile.modality is Modality.IMAGE
    assert (profile.gpu_layers, profile.threads, profile.on_host) == (0, 6, True)
    (model,), _ = read("name: img\noptions: [diffusion_model, 'sampler:euler']\n")
    assert model.config["options"] == ["diffusion_model", "sampler:euler"]


@pytest.mark.parametrize("value", ["true", "-1", "many", "99999999"])
def test_numbers_that_are_none_are_not_told(value: str):
    profile = parse_scheduling_profile(f"name: a\nthreads: {value}\ngpu_layers: {value}\n")
    assert (profile.threads, profile.gpu_layers, profile.on_host) == (None, None, False)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, []),
        ({"mmap": True, "mmlock": False}, []),
        ({"mmlock": True}, ["beside the GPU's copy"]),
        ({"mmlock": True, "gpu_layers": 0}, ["right so"]),
        ({"mmap": False}, ["twice"]),
        ({"mmap": False, "mmlock": True}, ["beside the GPU's copy", "twice"]),
    ],
)
def test_advice_on_how_weights_are_held(config: dict[str, object], says: list[str]):
    lines = advice_on(config)
    assert len(lines) == len(says)
    assert all(words in line for words, line in zip(says, lines, strict=True))


def test_two_files_that_name_one_model_are_told(tmp_path: Path):
    write(tmp_path, **{"a.yaml": "name: x\nf16: true\n", "b.yaml": "name: x\n"})
    found = read_folder(tmp_path)
    assert [(model.model, model.file) for model in found.models] == [("x", "a.yaml")]
    assert found.notes == ('b.yaml: "x" is configured in a.yaml already',)


def test_files_that_are_broken_are_told_and_others_read(tmp_path: Path):
    write(tmp_path, **{"a.yaml": "a: [\n", "b.yaml": "name: b\n", "c.yaml": "name: c\nname: d\n"})
    found = read_folder(tmp_path)
    assert names(found.models) == ["b", "c"]
    assert found.notes[0].startswith("a.yaml:")
    assert "stands twice" in found.notes[1]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(Invalid, match="cannot be read"):
        read_folder(tmp_path / "none")


def test_everything_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_files, "MAX_MODEL_FILES", 2)
    monkeypatch.setattr(model_files, "MAX_NOTES", 2)
    write(tmp_path, **{f"{name}.yaml": "backend: x\n" for name in "abc"})
    found = read_folder(tmp_path)
    assert found.models == ()
    assert len(found.notes) == 3
    assert found.notes[-1] == "… and 1 more"
    many = {"lora_adapters": [f"{number}.bin" for number in range(MAX_FILES + 5)]}
    assert len(named_files(many)) == MAX_FILES


def test_every_file_that_a_model_names_counts_once():
    config = {
        "parameters": {"model": "a.gguf"},
        "mmproj": "m.gguf",
        "draft_model": "d.gguf",
        "lora_adapter": "l.bin",
        "lora_adapters": ["l.bin", "k.bin", 7, ""],
        "lora_base": "https://h/x",
    }
    assert local_weights(config) == ("a.gguf", "m.gguf", "d.gguf", "l.bin", "k.bin")
    assert named_files({"parameters": "x", "lora_adapters": "y"}) == ()


@pytest.mark.parametrize(
    ("uses", "modality"),
    [(["nothing", "tts"], Modality.SPEECH), (["embeddings", "chat"], Modality.CHAT), ([], None)],
)
def test_words_of_localai(uses: list[str], modality: Modality | None):
    assert modality_of(uses) is modality


def test_a_model_says_its_name():
    assert ModelId("a") == read("name: a")[0][0].model
