"""The API page: every public name, what both backends have side by side.

`run.py refresh` writes it to chapters/api.md. It holds names and first sentences; the entries
themselves are read from the docstrings when the book is built.
"""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

TWINS = {"qkvlib.numpy": "NumPy", "qkvlib.torch": "PyTorch"}
FILES = {
    "attention": "Attention",
    "masks": "Masks",
    "multihead": "Projections and heads",
    "blocks": "Norms, feed-forward, block",
    "positions": "Positions",
    "initialization": "Initialisation",
    "models": "Models",
    "decoding": "Text, token by token",
    "devices": "Devices",
}
"""The files of the twins, in the order in which the page shows them."""

HEAD = """\
% Made by run.py refresh from the docstrings. Do not edit.

# API

Two packages do the same work under the same names.
`qkvlib.numpy` is the reference, written to be read.
`qkvlib.torch` takes tensors on any device and has gradients.
What differs: only torch's functions take a `device`; a layer is `__call__` in NumPy and `forward`
in torch; in torch `MultiHeadAttention` also has `dropout` and can be made from other layers; and
where torch has autograd, NumPy has {py:mod}`qkvlib.numpy.gradients`.
After them come the modules that serve both, and those that only the chapters use.
Shapes are written as on the page {doc}`notation`, and each entry names its source.
"""


def render():
    """The page as MyST Markdown, the same for the same docstrings."""
    parts = [HEAD, "## Both backends\n", overview()]
    for file, title in FILES.items():
        parts += [f"## {title}\n", *(side_by_side(name) for name in twin_names(file))]
    parts += [module_section(name) for name in module_names()]
    return "\n".join(parts)


# ---- the twins ---------------------------------------------------------------------------------


def twin_names(file):
    """The public names that the twins' files of this name define, in the order of the lines."""
    lines = {}
    for package in TWINS:
        for name, thing in exported(package).items():
            if thing.__module__ == f"{package}.{file}":
                lines.setdefault(name, inspect.getsourcelines(thing)[1])
    return sorted(lines, key=lines.get)


def exported(package):
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def overview():
    """One line for each name: links to its entries, and its first sentence."""
    lines = []
    for name in [name for file in FILES for name in twin_names(file)]:
        links = ", ".join(f"{{py:obj}}`{TWINS[home]} <{home}.{name}>`" for home in homes(name))
        lines.append(f"- **{name}** ({links}): {summary(homes(name)[0], name)}")
    return "\n".join(lines) + "\n"


def homes(name):
    return [package for package in TWINS if name in exported(package)]


def summary(module, name):
    return " ".join(inspect.getdoc(exported(module)[name]).split("\n\n")[0].split())


def side_by_side(name):
    columns = "\n".join(
        f":::{{grid-item}}\n{directive(package, name, exported(package)[name])}:::"
        for package in homes(name)
    )
    return f"### {name}\n\n::::{{grid}} 1 1 2 2\n{columns}\n::::\n"


# ---- the other modules -------------------------------------------------------------------------


def module_names():
    """Every public module outside the twins; a package that exports names is taken as one.

    A file of one twin alone that exports names itself counts too.
    """
    return sorted(_modules("qkvlib"), key=lambda name: (name.count("."), name))


def _modules(package):
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.name.rpartition(".")[2].startswith("_"):
            continue
        if found.name in TWINS:
            files = _modules(found.name)
            yield from (m for m in files if hasattr(importlib.import_module(m), "__all__"))
        elif found.ispkg and not hasattr(importlib.import_module(found.name), "__all__"):
            yield from _modules(found.name)
        else:
            yield found.name


def public_names(module):
    """What a module exports, else its public functions, classes and explained constants."""
    if hasattr(module, "__all__"):
        return module.__all__
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    names = []
    for node, after in zip(body, [*body[1:], None]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign) and _is_text(after):
            names += [target.id for target in node.targets]
    return [name for name in names if not name.startswith("_")]


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def module_section(name):
    module = importlib.import_module(name)
    names = public_names(module)
    index = [f".. automodule:: {name}", "   :no-members:", ""]
    index += [".. autosummary::", "   :nosignatures:", "", *(f"   {each}" for each in names)]
    entries = "\n".join(directive(name, each, getattr(module, each)) for each in names)
    return f"## {name}\n\n{eval_rst(*index)}\n{entries}"


# ---- the entries -------------------------------------------------------------------------------


def directive(module, name, thing):
    """The autodoc directive that writes one entry."""
    if inspect.isclass(thing):
        members = [] if _is_record(thing) else ["   :members:", "   :special-members: __call__"]
        return eval_rst(f".. autoclass:: {module}.{name}", *members)
    if callable(thing) and hasattr(thing, "__name__"):
        return eval_rst(f".. autofunction:: {module}.{name}")
    return eval_rst(f".. autodata:: {module}.{name}", "   :no-value:")


def _is_record(thing):
    """A NamedTuple: its fields are explained in the docstring of the class."""
    return issubclass(thing, tuple) and hasattr(thing, "_fields")


def eval_rst(*lines):
    return "\n".join(["```{eval-rst}", *lines, "```", ""])
