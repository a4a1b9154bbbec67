"""The documentation site builds strictly: every link and anchor leads somewhere, also those of README and ARCHITECTURE.

It is built once for this file. What it shows of the code is compared with the code, and nothing on it is fetched from
another host.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tocsin
import tocsin.spark
from tocsin import composite, led
from tocsin import rules as rules_package
from tocsin.net.http.table import OPERATIONS
from tools.reference import commands

ROOT = Path(__file__).resolve().parents[2]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
"""Elements for which a browser fetches something, and where from."""


def build(place: Path, *options: str) -> tuple[int, str]:
    """Exit code, and what was said."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place), *options],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    code, said = build(place)
    assert code == 0 and "WARNING" not in said, said
    return place


@pytest.mark.parametrize("target", ["#nowhere", "b.md#nowhere", "gone.md"])
def test_a_link_that_leads_nowhere_ends_the_build(target: str, tmp_path: Path) -> None:
    """Our settings, on two pages of their own."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A\n\n[there]({target}) and [well](b.md#c-d)\n")
    (tmp_path / "docs" / "b.md").write_text("# B\n\n## C d\n")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nhooks: []\nwatch: []\nnav: [index.md, b.md]\n"
    )
    code, said = build(tmp_path / "site", "--config-file", str(settings))
    assert code != 0 and target in said, said
    assert said.count("WARNING") == 1, "and the other one is right"


def pages(site: Path) -> Iterator[Path]:
    yield from sorted(site.rglob("*.html"))


def shown(site: Path, *names: str) -> str:
    """The text of pages, without markup."""
    text = "".join((site / "reference" / f"{name}.html").read_text() for name in names)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def headings(site: Path, *names: str) -> set[str]:
    text = "".join((site / "reference" / f"{name}.html").read_text() for name in names)
    found = re.findall(r"<h[23][^>]*>(.*?)<a class=\"headerlink\"", text, re.DOTALL)
    return {html.unescape(re.sub(r"<[^>]+>", "", each)).strip() for each in found}


class _Fetched(HTMLParser):
    """What a browser would fetch for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        place = dict(attributes).get(LOADED.get(tag, ""))
        if place is not None and dict(attributes).get("rel") not in ("canonical", "next", "prev"):
            self.places.append(place)


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    for page in pages(site):
        parser = _Fetched()
        parser.feed(page.read_text())
        assert parser.places, f"{page.name} has no style at all: is it read rightly?"
        away = [place for place in parser.places if re.match(r"(\w+:)?//", place)]
        assert not away, f"{page.relative_to(site)} fetches {away}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style.name


def test_every_public_name_of_python_is_explained(site: Path) -> None:
    found = {name.rpartition(".")[2] for name in headings(site, "python", "pieces", "rules", "spark")}
    modules = {"__version__", "composite", "sync", "testing"}
    for package in (tocsin, tocsin.spark, composite, led, rules_package):
        names = {name for name in package.__all__ if callable(getattr(package, name))}
        assert names - modules <= found, f"{package.__name__}: {sorted(names - modules - found)}"
    assert {"Bus.publish", "Delivery.ack", "Matcher.match"} <= headings(site, "python", "pieces")


def test_every_verb_with_its_options(site: Path) -> None:
    found, text = headings(site, "cli"), shown(site, "cli")
    for name, command in commands.walk():
        assert name in found
        for each in command.params:
            is_option = each.opts[0].startswith("-")
            assert (each.opts[0] if is_option else each.metavar or each.name.upper()) in text, f"{name} {each.opts}"


def test_every_route_with_its_parameters(site: Path) -> None:
    found, text = headings(site, "http"), shown(site, "http")
    for each in OPERATIONS:
        assert f"{each.method} {each.path.replace(':path', '')}" in found
        assert all(parameter.name in text for parameter in (*each.query, *each.headers))


def test_every_metric_that_a_page_names(site: Path) -> None:
    there = shown(site, "metrics")
    named = set(re.findall(r"`(tocsin_[a-z_]+)`", (ROOT / "docs" / "HTTP.md").read_text()))
    assert named and not [name for name in named if name not in there]


def test_limits_have_their_numbers(site: Path) -> None:
    text = " ".join(shown(site, "configuration").split())
    assert "max_frame 16 MiB Bytes in a frame." in text
    assert "length 262,144 Characters of text." in text
    assert "TOCSIN_PORT tocsin up" in text


def test_figures_are_in_the_pages(site: Path) -> None:
    figures = sorted(path.stem for path in (ROOT / "docs" / "figures").glob("*.svg") if path.stem != "bell")
    drawn = "".join(page.read_text() for page in (site / "concepts").glob("*.html"))
    assert len(figures) == drawn.count('<svg class="fig"') == 8
    assert "<style>:root" not in drawn, "a figure would bring its own colours into the page"


def test_pages_of_the_root_are_there_and_link_within_the_site(site: Path) -> None:
    readme = (site / "project" / "index.html").read_text()
    assert 'href="../QUICKSTART.html"' in readme and "benchmarks/rules.py" not in readme
    assert "../project/ARCHITECTURE.html#decisions-worth-knowing" in (site / "about" / "seeds.html").read_text()
