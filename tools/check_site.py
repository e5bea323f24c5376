"""Look over the built book: every page is there and says something, and loads nothing from afar.

python tools/check_site.py [folder of the built site]
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[1]
WORDS = 20  # a page with fewer words of its own is empty

# Attributes whose address a browser fetches by itself. An <a href> waits for a click.
LOADS = {"src", "srcset", "poster", "data", "background", "xlink:href"}
LOADING_HREF = {"link", "image", "use", "base"}
IN_CSS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
IN_SCRIPT = re.compile(r"""["'`]((?:https?:|wss?:)?//[\w.-]+\.\w[^"'`]*)""")


def main(html):
    problems = [*page_problems(html), *load_problems(html)]
    print(
        "\n".join(problems) or f"{len(toc_pages())} pages, each with text; no load from elsewhere"
    )
    sys.exit(bool(problems))


# ---- the pages ---------------------------------------------------------------------------------


def toc_pages():
    """The pages that _toc.yml lists, as paths without suffix."""
    return list(_files(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))


def _files(entry):
    for key in ("root", "file"):
        if key in entry:
            yield entry[key]
    for key in ("parts", "chapters", "sections"):
        for child in entry.get(key, ()):
            yield from _files(child)


def page_problems(html):
    for page in toc_pages():
        path = html / f"{page}.html"
        if not path.exists():
            yield f"{page}: listed in _toc.yml, missing in {html}"
        elif len(Page(path).words) < WORDS:
            yield f"{page}: empty"


# ---- what a browser would fetch ----------------------------------------------------------------


def load_problems(html):
    for path in sorted(html.rglob("*")):
        if path.name.endswith("webpack-macros.html"):  # a template that the theme leaves behind
            continue
        if path.suffix == ".html":
            loads = Page(path).loads
        elif path.suffix == ".css":
            loads = css_loads(path.read_text(encoding="utf-8"))
        else:
            continue
        for address in loads:
            if is_elsewhere(address):
                yield f"{path.relative_to(html).as_posix()}: loads {address}"
            elif not (path.parent / unquote(urlsplit(address).path)).exists():
                yield f"{path.relative_to(html).as_posix()}: loads {address}, which is missing"


def is_elsewhere(address):
    parts = urlsplit(address.strip())
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def css_loads(text):
    found = ("".join(match) for match in IN_CSS.findall(text))
    return [address for address in found if not address.startswith(("data:", "#"))]


class Page(HTMLParser):
    """One page: the words of its article, and the addresses that it loads."""

    def __init__(self, path):
        super().__init__()
        self.words, self.loads = [], []
        self._article, self._raw = 0, None
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag, attributes):
        self._article += tag == "article"
        self._raw = tag if tag in ("script", "style") else None
        for name, value in attributes:
            self.loads += attribute_loads(tag, name, value or "")

    def handle_endtag(self, tag):
        self._article -= tag == "article"
        self._raw = None

    def handle_data(self, text):
        if self._raw == "style":
            self.loads += css_loads(text)
        elif self._raw == "script":
            self.loads += IN_SCRIPT.findall(text)
        elif self._article:
            self.words += text.split()


def attribute_loads(tag, name, value):
    if name == "srcset":
        found = [candidate.split()[0] for candidate in value.split(",") if candidate.strip()]
    elif name in LOADS or (name == "href" and tag in LOADING_HREF):
        found = [value]
    elif name == "style":
        found = css_loads(value)
    elif name == "content" and "url=" in value:  # <meta http-equiv="refresh">
        found = [value.split("url=")[1]]
    else:
        found = []
    return [address for address in found if address and not address.startswith(("data:", "#"))]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "_build" / "html")
