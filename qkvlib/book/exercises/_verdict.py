"""What a checker says about an answer."""

import html
import re
from dataclasses import dataclass

KINDS = (
    "not attempted",
    "raised",
    "out of time",
    "wrong type",
    "wrong shape",
    "wrong dtype",
    "known mistake",
    "wrong",
    "right, but",
    "right",
)
"""The kinds of verdict. Only the last two are right."""

# Colour is never alone: the headline says it in words too.
COLOURS = {"right": "#007a5a", "right, but": "#8a6d00", "not attempted": "#6b7280"}
ELSE = "#b4450f"


@dataclass(frozen=True)
class Verdict:
    """What a checker says: shown as a box in a notebook, as text elsewhere, true if it is right.

    exercise: its id. kind: one of `KINDS`. says: what is the matter, in a sentence or two.
    details: pairs of a label and some lines to look at, such as the smallest failing case.
    mistake: the name of the mistake, if it has one.
    """

    exercise: str
    kind: str
    says: str
    details: tuple = ()
    mistake: str | None = None

    def __bool__(self):
        return self.kind.startswith("right")

    @property
    def headline(self):
        """The exercise, the kind of verdict, and the name of the mistake."""
        kind = {"known mistake": f"a known mistake, {self.mistake}", "wrong": "not right yet"}
        return f"{self.exercise}: {kind.get(self.kind, self.kind)}."

    def __repr__(self):
        blocks = [f"{label}:\n{_indented(text)}" for label, text in self.details]
        return "\n".join([f"{self.headline} {self.says}".rstrip(), *blocks])

    def _repr_html_(self):
        colour = COLOURS.get(self.kind, ELSE)
        parts = [f"<p><strong>{_marked(self.headline)}</strong> {_marked(self.says)}</p>"]
        for label, text in self.details:
            parts.append(f"<p>{html.escape(label)}:</p>\n<pre>{html.escape(text)}</pre>")
        style = f"border-left: 0.25rem solid {colour}; padding-left: 0.75rem"
        return f'<div class="verdict" style="{style}">\n' + "\n".join(parts) + "\n</div>"


def _marked(text):
    """Text as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _indented(text):
    return "\n".join(f"    {line}" for line in text.splitlines())
