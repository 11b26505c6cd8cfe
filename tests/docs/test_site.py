"""The site opens from disk: no link is broken, nothing is fetched from elsewhere, and its search answers."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from test_docs import ROOT
from test_report_browser import browse, needs_browser

pytestmark = pytest.mark.docs


class Page(HTMLParser):
    """The ids of a page, its links, and what a browser fetches to show it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and "href" in found and found.get("rel") != "canonical":
            self.fetched.append(found["href"])
        elif "src" in found:
            self.fetched.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_no_link_is_broken_and_nothing_is_fetched(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    broken = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                broken += [f"{path}: {link} is fetched"] if link in page.fetched else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].ids if target in pages else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 20
    assert not broken, "\n".join(broken)


@needs_browser
def test_search_answers_from_disk(site: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.html"  # the browser is given a path, so what is asked goes by way of a page
    asked.write_text(f'<meta http-equiv="refresh" content="0;url={(site / "index.html").as_uri()}?q=forecast">')
    dom, console = browse(asked, tmp_path / "profile", "--virtual-time-budget=10000")
    assert console == []
    assert re.search(r'api/results\.html#sdefit\.Forecast" class="md-search-result__link', dom)
