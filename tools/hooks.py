"""What MkDocs is told to do beside turning Markdown into pages. `mkdocs.yml` names this file.

1. The references are made from the code (`tools/reference/`) and added, and so are the pages in the root of the
   repository, which are read on a forge as well.
2. Links are written for a forge, where `../ARCHITECTURE.md` is a file; here they are turned into the site's. One to a
   file that is no page becomes plain text, one to nothing is a warning, which ends a strict build.
3. Fences lose what tests read behind the language (`python no-run`).
4. Figures are put into the page itself, so that their colours follow the page's light and dark.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.reference import PAGES

ROOT = Path(__file__).resolve().parents[1]
OF_ROOT = {name: f"project/{name}" for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")}
"""Pages in the root of the repository, and where they are on the site."""
INDEX = "reference/README.md"
"""Names the pages that are made. Only here do links to them lead somewhere."""

_FENCE = re.compile(r"^(?P<fence> *```)(?P<kind>[a-z]*)[^\n]*\n.*?^ *```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s]+)\)")
_PICTURE = re.compile(r"!\[(?P<text>[^\[\]]*)\]\((?P<target>[^)\s]+\.png)\)")
_MENTION = re.compile(r"(?<!\[)`docs/(?P<page>[\w/-]+\.md)`")
_MADE = re.compile(r"`(?P<page>\w+\.md)`")
_FIGURE = re.compile(r"^!\[(?P<about>[^\]]*)\]\((?P<target>[^)]+\.svg)\)$", re.MULTILINE)
_STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)
_log = logging.getLogger("mkdocs.hooks.tocsin")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, uri in OF_ROOT.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    for uri, make in PAGES.items():
        files.append(File.generated(config, uri, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make a page fit the site."""
    uri = page.file.src_uri
    written, end = [], 0
    for fence in _FENCE.finditer(markdown):
        written.append(_prose(markdown[end : fence.start()], uri))
        first, _, rest = fence[0].partition("\n")
        written.append(f"{fence['fence']}{fence['kind']}\n{rest}")
        end = fence.end()
    written.append(_prose(markdown[end:], uri))
    return "".join(written)


def _prose(text: str, uri: str) -> str:
    if uri not in PAGES:  # those are written for the site
        text = _MENTION.sub(lambda match: f"[{match['page']}]({_from_root(uri)}docs/{match['page']})", text)
        text = _LINK.sub(lambda match: _link(match, uri), text)
        text = _PICTURE.sub(lambda match: f"!{_link(match, uri)}", text)
    if uri == INDEX:
        text = _MADE.sub(lambda match: f"[{match['page'].removesuffix('.md')}]({match['page']})", text)
    return _FIGURE.sub(lambda match: _figure(match, uri), text)


def _from_root(uri: str) -> str:
    """The way from a page's file in the repository to the root, as links there write it."""
    depth = 0 if uri.startswith("project/") else uri.count("/") + 1
    return "../" * depth


def _link(match: re.Match[str], uri: str) -> str:
    path, _, anchor = match["target"].partition("#")
    if not path or ":" in path:
        return match[0]
    folder = "" if uri.startswith("project/") else posixpath.join("docs", posixpath.dirname(uri))
    target = posixpath.normpath(posixpath.join(folder, path))
    if target == "docs":
        target = "docs/README.md"
    if target in OF_ROOT:
        there = OF_ROOT[target]
    elif target.startswith("docs/"):
        there = target.removeprefix("docs/")
    elif (ROOT / target).exists():
        return match["text"]
    else:
        _log.warning("%s links to %s, which does not exist", uri, match["target"])
        return match[0]
    near = posixpath.relpath(there, posixpath.dirname(uri) or ".")
    return f"[{match['text']}]({near}{'#' + anchor if anchor else ''})"


def _figure(match: re.Match[str], uri: str) -> str:
    path = ROOT / "docs" / posixpath.dirname(uri) / match["target"]
    if not path.exists():
        _log.warning("%s shows %s, which does not exist", uri, match["target"])
        return match[0]
    drawing = _STYLE.sub("", path.read_text())  # the site's own style has the same, and follows its colours
    drawing = re.sub(r"\n\s*", " ", drawing)  # a blank line or an indent would end the block
    return f'<figure class="figure" role="img" aria-label="{match["about"]}">{drawing}</figure>'
