"""The page of misconceptions, made from the catalogue of mistakes: `run.py refresh` writes it."""

import inspect
import json
from pathlib import Path

from qkvlib.book import mistakes_table
from qkvlib.mistakes import MISTAKES, SUBJECTS

MUTANTS = Path(__file__).with_name("mutants.json")

HEAD = """\
% Made by run.py refresh from the catalogue of mistakes. Do not edit.

# Misconceptions

> The shapes fit, the rows sum to 1, the loss goes down.

All three can be true of wrong attention.
Here are {mistakes} ways to get it wrong.
{distinct} of them are different at heart, the others are variants.
{reported} come with a link to a place where somebody met one.

Each box opens on the wrong code, what looks right about it, and the check that catches it.
Before you open one, read its title and ask: *what would I have to test, to see this?*

A check is mostly a **law**: something that every right implementation obeys, whatever its numbers.
Change what a query may not read, and its output must not move; that is a law.
{unlawful} mistakes obey every law that we know: only a comparison with right numbers shows them.
The shape of an output catches almost none as long as sizes are equal.
In our tests they all differ.

With your own function, `qkvlib` does the looking:

```python
from qkvlib.mistakes import broken_laws, name_of_mistake

name_of_mistake(my_attention, "attention")   # such as "no-scale", or None
broken_laws(my_attention, "attention")       # each with its smallest counter-example
```

The tests of `qkvlib` itself are tested in the same way.
A program changes the code of both twins in {changes} small places, one at a time: a minus for a
plus, `<` for `<=`, one axis for another.
The tests notice {noticed} of these changes, {share} %.
What they do not notice is listed one by one in `tests/survivors.toml`, with the reason.

The names in quotes in the headings are what to pass on.
The line below each says how your function is called.

| In | Mistakes | Seen by no law |
|---|---:|---:|
{rows}
"""


def render(laws=None):
    """The page as MyST Markdown, the same for the same catalogue.

    laws: those that each mistake breaks, by default as the stored table has them
    """
    laws = mistakes_table.load() if laws is None else laws
    parts = [_head(laws)]
    for subject in SUBJECTS.values():
        parts += [f'## "{subject.name}"\n', f"`{subject.signature}`\n"]
        parts += [_box(mistake, laws[mistake.name]) for mistake in subject.mistakes.values()]
    return "\n".join(parts)


def _head(laws):
    unlawful = {name for name, broken in laws.items() if not broken}
    rows = (
        f"| {subject.name} | {len(subject.mistakes)} | {len(unlawful & set(subject.mistakes))} |"
        for subject in SUBJECTS.values()
    )
    score = json.loads(MUTANTS.read_text(encoding="utf-8")).values()
    changes, noticed = (sum(file[key] for file in score) for key in ("tried", "noticed"))
    return HEAD.format(
        changes=changes,
        noticed=noticed,
        share=f"{100 * noticed / changes:.1f}",
        mistakes=len(MISTAKES),
        distinct=sum(mistake.variant_of is None for mistake in MISTAKES.values()),
        reported=sum(mistake.reported is not None for mistake in MISTAKES.values()),
        unlawful=len(unlawful),
        rows="\n".join(rows),
    )


def _box(mistake, broken):
    lines = [
        f"(mistake-{mistake.name})=",
        f":::{{admonition}} {mistake.name}",
        ":class: dropdown",
        mistake.says,
        "",
        "```python",
        mistake.source.rstrip(),
        "```",
        "",
        f"**What looks right:** {mistake.looks_right}",
        "",
        f"**What catches it:** {_check(mistake, broken)}",
    ]
    if mistake.variant_of:
        origin = mistake.variant_of
        link = f"{{ref}}`{origin} <mistake-{origin}>`" if origin in MISTAKES else f"`{origin}`"
        lines += ["", f"**At heart:** {link}."]
    if mistake.reported:
        lines += ["", f"**Met in:** {_link(mistake.reported)}."]
    return "\n".join([*lines, ":::", ""])


def _check(mistake, broken):
    if mistake.law is None:
        also = "inputs at which it has no answer" if broken else "it breaks no law"
        return f"a comparison with right numbers; {also}."
    first_line = inspect.getdoc(mistake.law).split("\n\n")[0].replace("\n", " ")
    others = len(set(broken) - {mistake.law.__name__})
    more = f" It breaks {others} more." if others else ""
    return f"the law `{mistake.law.__name__}`. {first_line}{more}"


def _link(reported):
    repository, number = reported.split("#")
    return f"[{reported}](https://github.com/{repository}/issues/{number})"
