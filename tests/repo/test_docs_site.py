"""The documentation as a site: it builds without a warning, holds every page, fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contracts.reasons import Reason
from tests import reasons_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``make docs`` does; links, anchors and pages without a place fail it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=50,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(page: Path) -> Iterator[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page.read_text())
    yield from parser.found


def test_every_page_is_reached_from_the_navigation(site: Path):
    linked = {
        attributes["href"]
        for tag, attributes in tags(site / "index.html")
        if tag == "a" and "md-nav__link" in (attributes.get("class") or "")
    }
    pages = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")}
    assert pages - linked == set()


def test_it_fetches_nothing_from_elsewhere(site: Path):
    for page in site.rglob("*.html"):
        for tag, attributes in tags(page):
            if tag in {"script", "img", "iframe", "link"}:
                address = attributes.get("src") or attributes.get("href") or ""
                assert not re.match(r"(https?:)?//", address), f"{page.name}: {address}"


def test_lists_and_tables_of_the_pages_are_lists_and_tables_there(site: Path):
    """Python-Markdown reads them otherwise than GitHub does, which the site's hooks undo."""
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.search(r"^\|.*\|\s*$|^<p>\|", text, re.MULTILINE), page.name
        assert not re.search(r"^(<p>)?(- |\d+\. )", text, re.MULTILINE), page.name


def test_the_page_of_reasons_is_that_of_the_list():
    assert reasons_page.PAGE.read_text() == reasons_page.page(), "python -m tests.reasons_page"


def test_every_reason_is_in_one_group():
    grouped = [reason for _, reasons in reasons_page.groups() for reason in reasons]
    assert sorted(grouped) == sorted(Reason)
