"""What is cited, and the page of further reading made from it: `run.py refresh` writes it."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from qkvlib.book import claims

CITATION = re.compile(r"[A-Z][\w-]+(?: & [A-Z][\w-]+| et al\.| Team)? (?:19|20)\d\d\b")
"""What a citation looks like: "Bridle 1990", "Zhang & Sennrich 2019", "Allal et al. 2025"."""

MOST = 9  # so many claims are listed with a source; of more their number is given

HEAD = """\
% Made by run.py refresh from sources.toml and the claims. Do not edit.

# Further reading

Everything that this book and its code take from elsewhere, with a line on what you find there.
After many come the claims that rest on them; {doc}`claims` names the section.
The {doc}`api` names sections and equations for each function.

If you read only three, take the three under the first heading.
"""


@dataclass(frozen=True)
class Source:
    """One entry of `sources.toml`."""

    key: str
    topic: str
    title: str
    link: str
    about: str

    @property
    def address(self):
        number = self.link.removeprefix("arXiv:")
        return self.link if number == self.link else f"https://arxiv.org/abs/{number}"


@cache
def _data():
    return tomllib.loads(files("qkvlib.book").joinpath("sources.toml").read_text(encoding="utf-8"))


@cache
def load():
    """The sources by their key, in the order of the file."""
    return {entry["key"]: Source(**entry) for entry in _data()["sources"]}


def cited(text):
    """The keys of the sources that a text cites, in the order of the file."""
    text = " ".join(text.split())
    return [key for key in load() if key in text]


def unknown(text):
    """The citations in a text that no source stands for."""
    found = CITATION.findall(" ".join(text.split()))
    return [citation for citation in found if not any(key.endswith(citation) for key in load())]


def render():
    """The page as MyST Markdown, the same for the same data files."""
    resting = {key: [] for key in load()}
    for claim in claims.load().values():
        for key in cited(claim.source):
            resting[key].append(f"{{ref}}`{claim.id} <{claims.label(claim.id)}>`")
    lines = [HEAD]
    for topic, title in _data()["topics"].items():
        of_topic = [source for source in load().values() if source.topic == topic]
        lines += [f"## {title}\n", *(_entry(source, resting[source.key]) for source in of_topic)]
    return "\n".join(lines)


def _entry(source, resting):
    used = _used(resting)
    return f"- **{source.key}**, [{source.title}]({source.address}). {source.about}{used}\n"


def _used(resting):
    if len(resting) > MOST:
        return f" Claims: {len(resting)} of the {len(claims.load())}, in nearly every chapter."
    return f" Claims: {', '.join(resting)}." if resting else ""
