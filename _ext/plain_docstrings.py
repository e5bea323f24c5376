"""Docstrings written to be read as plain text, turned into reStructuredText for the API page.

In this project a docstring is text with `code` between single backticks. Arguments stand one to a
line, as in "name: what it is", and so do results, which begin with an arrow. Examples are
doctests; what is aligned by hand, or indented, keeps its look.
"""

import re

NEW_LINE = re.compile(r"[\w`*, -]+: |-> |- ")
CODE = re.compile(r"``(.+?)``|`(.+?)`")
ALIGNED = re.compile(r"\S {3,}\S")
EXAMPLE = re.compile(r"^(?=>>> )", re.MULTILINE)
SPECIAL = re.compile(r"\*\w[^*]*\w\*|[\\*_|`]")


def setup(app):
    app.connect("autodoc-process-docstring", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def rewrite(app, what, name, thing, options, lines):
    """Change the lines of a docstring in place, as autodoc wants it."""
    if name.startswith("qkvlib"):
        lines[:] = restructured("\n".join(lines)).splitlines()


def restructured(text):
    """A docstring, paragraph by paragraph; an example begins one of its own."""
    paragraphs = re.split(r"\n\s*\n", text.strip("\n"))
    parts = [part for paragraph in paragraphs for part in re.split(EXAMPLE, paragraph, maxsplit=1)]
    return "\n\n".join(block(part) for part in parts if part.strip()) + "\n"


def block(text):
    if text.startswith(">>> "):
        return text
    if text.startswith("  ") or ALIGNED.search(text):
        return "::\n\n" + "\n".join(f"    {line}" for line in text.splitlines())
    lines = [inline(line) for line in logical_lines(text)]
    if len(lines) == 1 or all(line.startswith("- ") for line in lines):
        return "\n".join(lines)
    return "\n".join(f"| {line}" for line in lines)


def logical_lines(text):
    """The lines as they are meant: one that goes on below is put together again."""
    first, *others = text.splitlines()
    lines = [first]
    for line in others:
        if NEW_LINE.match(line):
            lines.append(line)
        else:
            lines[-1] += " " + line.strip()
    return lines


def inline(text):
    """Code between double backticks, and nothing else with a meaning of its own."""
    parts, end = [], 0
    for found in CODE.finditer(text):
        parts += [escaped(text[end : found.start()]), f"``{found[1] or found[2]}``"]
        end = found.end()
    parts.append(escaped(text[end:]))
    return r"\ ".join(filter(None, parts)).replace(r"\  ", " ").replace(r" \ ", " ")


def escaped(text):
    """Plain text: what has a meaning to reStructuredText loses it, but for *emphasis*."""
    return SPECIAL.sub(lambda found: found[0] if len(found[0]) > 1 else "\\" + found[0], text)
