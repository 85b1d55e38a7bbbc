"""The docs agree with the code: links lead somewhere, tables hold what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contracts import redis_keys
from workers.queues import QUEUES

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "data").glob("*.md")]
)
ADRS = sorted((ROOT / "docs/adr").glob("*.md"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_within_the_repository_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", _without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        linked = (page.parent / place).resolve() if place else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            titles = re.findall(r"^#+ (.+)$", _without_code(linked.read_text()), re.MULTILINE)
            assert anchor in {_anchor(title) for title in titles}, target


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_each_page_has_one_title(page: Path):
    titles = re.findall(r"^# .+$", _without_code(page.read_text()), re.MULTILINE)
    assert len(titles) == 1


@pytest.mark.parametrize("page", ADRS, ids=_name)
def test_decisions_have_a_number_context_decision_and_consequences(page: Path):
    text = page.read_text()
    assert re.match(rf"# (?:{page.name[:4]}:|{int(page.name[:4])}\.) \S", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.splitlines()) <= 60


def test_decisions_are_numbered_without_gaps():
    assert [page.name[:4] for page in ADRS] == [f"{n:04}" for n in range(1, len(ADRS) + 1)]


def _keys_in_code() -> set[str]:
    """Every Redis key of ours; what follows the last colon of a family is a name."""
    text = (ROOT / "contracts/redis_keys.py").read_text()
    whole = re.findall(r'= PREFIX \+ "([^"]+)"', text)
    families = re.findall(r'f"\{PREFIX\}([a-z\-]+:)\{', text)
    return {f"headstart:{key}" for key in [*whole, *families]}


def test_every_redis_key_is_in_the_architecture_and_no_other():
    text = (ROOT / "docs/architecture.md").read_text()
    told = set(re.findall(r"^\| `(headstart:[^`<]+)(?:<\w+>:?)*`", text, re.MULTILINE))
    assert told == _keys_in_code()


def test_every_redis_key_is_shown_with_the_tag_that_it_has_in_a_cluster():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `(headstart:[^`]+)` \| (?:`(\{[\w\-]+\})`)?", text, re.MULTILINE)
    assert len(rows) > 30
    for key, tag in rows:
        is_of_jobs = key.startswith("headstart:job-")
        assert is_of_jobs is not bool(tag), key
        assert is_of_jobs or redis_keys.tagged(key).startswith(f"headstart:{tag}"), key


def test_the_architecture_lists_every_folder_that_is_shipped():
    text = (ROOT / "docs/architecture.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert listed == packages | {"tests"}


def test_the_compose_guide_names_every_setting_of_the_compose_files_with_its_default():
    guide = (ROOT / "docs/howto/docker-compose.md").read_text()
    files = sorted(path.name for path in ROOT.glob("docker-compose*.yaml"))
    for file in files:
        assert file in guide or file == "docker-compose.yaml"
        for name, default in re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", (ROOT / file).read_text()):
            assert f"`{name}`" in guide, name
            assert f"`{default}`" in guide, f"{name}: {default}"
    for queue in QUEUES:
        assert queue in guide


def test_the_contributing_page_names_commands_that_there_are():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(
        r"^make ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    ):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_glossary_is_in_order_and_says_each_word_once():
    text = (ROOT / "docs/glossary.md").read_text()
    words = re.findall(r"^\| \*\*([^*]+)\*\*", text, re.MULTILINE)
    assert len(words) == len(set(words))
    first = [word[0].lower() for word in words]
    assert first == sorted(first)


def test_the_changelog_has_an_unreleased_part_with_known_headings():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[Unreleased\]$", text, re.MULTILINE)
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
