"""The page of misconceptions says of each mistake what the catalogue knows."""

import json
import re

import pytest

from qkvlib.book.misconceptions import MUTANTS, render
from qkvlib.mistakes import MISTAKES, SUBJECTS

PAGE = render()
BOXES = dict(re.findall(r"\n\(mistake-([\w-]+)\)=\n(:::.*?\n:::)\n", PAGE, flags=re.DOTALL))


def test_every_mistake_has_one_box_under_the_heading_of_its_subject():
    assert list(BOXES) == [name for subject in SUBJECTS.values() for name in subject.mistakes]
    for name, subject in ((name, mistake.subject) for name, mistake in MISTAKES.items()):
        before = PAGE[: PAGE.index(f"(mistake-{name})=")]
        assert re.findall(r'^## "(.*)"$', before, flags=re.MULTILINE)[-1] == subject


@pytest.mark.parametrize("name", MISTAKES)
def test_a_box_holds_code_that_gives_nothing_away_and_the_check(name):
    mistake, box = MISTAKES[name], BOXES[name]
    [code] = re.findall(r"```python\n(.*?)\n```", box, flags=re.DOTALL)
    compile(code, name, "exec")
    assert code.strip() == mistake.source.strip()
    assert mistake.says not in code
    assert mistake.says in box
    assert mistake.looks_right in box
    caught = box.split("**What catches it:** ")[1]
    if mistake.law is None:
        assert caught.startswith("a comparison with right numbers")
    else:
        assert caught.startswith(f"the law `{mistake.law.__name__}`. ")
    assert (f"[{mistake.reported}](" in box) == (mistake.reported is not None)


def test_the_score_of_the_mutants_is_that_of_the_file():
    files = json.loads(MUTANTS.read_text(encoding="utf-8")).values()
    tried, noticed = (sum(file[key] for file in files) for key in ("tried", "noticed"))
    assert noticed >= 0.95 * tried
    assert f" in {tried} small places" in PAGE
    assert f"notice {noticed} of these changes, {100 * noticed / tried:.1f} %." in PAGE
