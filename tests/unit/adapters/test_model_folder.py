from __future__ import annotations

from adapters.model_folder import MAX_FILES, ModelFolders


def test_weights_are_named_as_localai_does_and_nothing_else_is(tmp_path):
    for name in ("a.Q8_0.gguf", "llm/b.GGUF", "llm/deep/c.gguf", "a.yaml", "llm/readme.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = ModelFolders([str(tmp_path), str(tmp_path), str(tmp_path / "nowhere")])
    assert found() == ("a.Q8_0.gguf", "llm/b.GGUF", "llm/deep/c.gguf")
    (tmp_path / "d.gguf").touch()
    assert "d.gguf" in found()
    assert ModelFolders([])() == ()


def test_a_folder_without_end_is_looked_at_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr("adapters.model_folder.MAX_FILES", 1)
    assert MAX_FILES > 1
    for number in range(4):
        folder = tmp_path / f"f{number}"
        folder.mkdir()
        (folder / "a.gguf").touch()
        (folder / "b.gguf").touch()
    assert len(ModelFolders([str(tmp_path)])()) == 2
