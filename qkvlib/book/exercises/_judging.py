"""A reader's function, judged: whether it is right, and else which mistake it is, or what fails."""

from functools import cached_property

from qkvlib.book.exercises._calling import library_functions, raised, seconds_of
from qkvlib.book.exercises._comparing import (
    alike,
    arrays_of,
    both_as_arrays,
    difference,
    inputs_by_name,
    inputs_shown,
    same,
)
from qkvlib.book.exercises._verdict import Verdict
from qkvlib.mistakes import broken_laws
from qkvlib.mistakes._catalogue import examined, near

SLOW = 50  # times as long as the right one
CHANGES = "What it returns is right. But it changes the arrays that it is given."
SINGLE = (
    "It answers rightly, though not to the last digit. "
    "Is something in it computed in float32, for inputs in float64?"
)
ELSEWHERE = "It is right on small cases, and fails on larger or more extreme ones."
BY_CHANCE = " Asked twice the same, it answers differently: where does its chance come from?"
ONLY_EQUAL = " Where all sizes are equal it is right: which axis goes where?"


class Judgement:
    """What is known of one answer. It is asked for its answers to the probes and cases once.

    checker: a `Code`. function: the answer, as checkers call it; answer: as the reader wrote it
    """

    def __init__(self, checker, exercise, function, answer):
        self.checker, self.exercise = checker, exercise
        self.function, self.answer = function, answer
        self.kind = checker.kind

    def verdict(self):
        examined, found = self._examined, self._first_difference
        if examined.mistake:
            return self._known(examined)
        if examined.right and found is None:
            return self._quality()
        if examined.only_its_arguments and found is None:
            return self._says("right, but", CHANGES)
        if self.checker.single and self._nearly():
            return self._says("right, but", SINGLE)
        if found is None:
            return self._says("wrong", ELSEWHERE, self._law() or self._error_elsewhere())
        return self._unknown(*found)

    def _says(self, kind, says, details=(), mistake=None):
        return Verdict(self.exercise.id, kind, says, details, mistake)

    # ---- asked once ------------------------------------------------------------------------------

    @cached_property
    def _answers(self):
        """What the function answers to the probes."""
        return self.kind._answers(self.function)

    @cached_property
    def _examined(self):
        """What the probes say; a mistake that is forgiven goes before one that only seems alike."""
        found = examined(self._answers, self.kind)
        if found.right or found.mistake in self.checker.beyond or self._first_difference:
            return found
        if self._forgiven is None:
            return found
        return found._replace(mistake=self._forgiven, only_its_arguments=False)

    @cached_property
    def _forgiven(self):
        """The first of `beyond` that shows, if no probe but those for `beyond` fails."""
        kind, shown = self.kind, []
        for tier, (ours, rights) in enumerate(zip(self._answers, kind._right_answers)):
            for place, (answer, right) in enumerate(zip(ours, rights)):
                if near(answer, right):
                    continue
                for name in self.checker.beyond:
                    if not near(kind._wrong_answers[name][tier][place], right):
                        shown.append(name)
                        break
                else:
                    return None
        return min(shown, key=self.checker.beyond.index, default=None)

    @cached_property
    def _cases(self):
        """For each case it, what the function answers, what is expected, and an error or None."""
        found = []
        for case in self.checker.cases:
            expected = case.asked(self.kind.right)
            try:
                found.append((case, case.asked(self.function), expected, None))
            except Exception as error:
                found.append((case, None, expected, error))
        return found

    @cached_property
    def _fails(self):
        """For each case whether it fails."""
        return [error is not None or not same(got, right) for _, got, right, error in self._cases]

    @cached_property
    def _first_difference(self):
        """Kind of verdict, words, details and the case, for the first that fails, or None.

        One that is wrong in late digits alone comes first only if there is no other.
        """
        late = None
        for (case, got, expected, error), fails in zip(self._cases, self._fails):
            if error is not None:
                details = (("It raises", raised(error, self.answer)),)
                details += inputs_shown(case, self.exercise)
                return "raised", f"{type(error).__name__}: {error}", details, case
            if fails:
                found = *difference(got, expected, case, self.exercise), case
                if not all(map(alike, *both_as_arrays(got, expected))):
                    return found
                late = late or found
        return late

    @cached_property
    def _broken(self):
        """The broken laws worth showing: none that only a forgiven mistake breaks."""
        if not self.checker.laws:
            return {}
        forgiven = {self.kind.mistakes[name].law for name in self.checker.beyond}
        spared = {law.__name__ for law in forgiven if law}
        broken = broken_laws(self.function, self.kind)
        return {name: law for name, law in broken.items() if name not in spared}

    # ---- a mistake with a name -------------------------------------------------------------------

    def _known(self, examined):
        mistake = self.kind.mistakes[examined.mistake]
        if examined.only_its_arguments:
            says = f"What it returns is right. But: {mistake.says}"
            return self._says("right, but", says, (), mistake.name)
        if mistake.name in self.checker.beyond and self._forgiven:  # and nothing else is wrong
            says = f"It does what this exercise asks. In other work, mind: {mistake.says}"
            return self._says("right, but", says, (), mistake.name)
        says = f"{mistake.says} It is easily missed: {_lower(mistake.looks_right)}"
        law = self._broken.get(mistake.law and mistake.law.__name__)
        details = self._first_difference[2] if self._first_difference else ()
        details += (("A law that it breaks", str(law)),) if law else ()
        return self._says("known mistake", says, details, mistake.name)

    # ---- a mistake without a name ----------------------------------------------------------------

    def _unknown(self, kind, says, details, failing):
        """The verdict on a case that fails for a reason without a name."""
        if kind == "wrong":
            details += self._law()
        if kind == "wrong" and self._by_chance():
            more = BY_CHANCE
        elif kind in ("raised", "wrong shape") and self._only_equal(failing):
            more = ONLY_EQUAL
        else:
            more = self._other_axes(failing)
        stop = "." if more and says[-1] not in ".?!" else ""
        return self._says(kind, f"{says}{stop}{more}", details)

    def _other_axes(self, failing):
        """What to say where all cases with as many axes fail, and all with another number pass."""
        by_axes = {}
        for (case, *_), fails in zip(self._cases, self._fails):
            by_axes.setdefault(case.axes, []).append(fails)
        have = failing.axes
        fine = [axes for axes, fails in by_axes.items() if not any(fails)]
        if not fine or not all(by_axes[have]):
            return ""
        name = next(iter(inputs_by_name(failing, self.exercise)))
        most = max(fine)
        then = "those in front may be missing" if have < most else "more may stand in front"
        return f" Where `{name}` has {most} axes it is right, and here it has {have}: {then}."

    def _only_equal(self, failing):
        """Whether it is right where all sizes are equal, asked in the same form."""
        equal = self.checker.equal
        if not equal or failing.form != equal.form:
            return False
        try:
            return same(equal.asked(self.function), equal.asked(self.kind.right))
        except Exception:
            return False

    def _by_chance(self):
        """Whether it answers the same case in two ways."""
        try:
            return any(not same(got, case.asked(self.function)) for case, got, *_ in self._cases)
        except Exception:
            return False

    def _nearly(self):
        """Whether what is wrong are late digits: from the seventh on, or the third if extreme."""
        digits = 1e-6
        for _, got, wanted, error in self._cases:
            got, wanted = arrays_of(got), arrays_of(wanted)
            if error or len(got) != len(wanted) or not all(map(alike, got, wanted)):
                return False
        for tier, rights in zip(self._answers, self.kind._right_answers):
            if not all(alike(answer, right, digits) for answer, right in zip(tier, rights)):
                return False
            digits = 1e-3
        return True

    def _law(self):
        """The first law that is broken, in words."""
        for name, law in self._broken.items():
            if name != "an_answer_to_everything":
                return (("A law that it breaks", str(law)),)
        return ()

    def _error_elsewhere(self):
        """What the function raises on the inputs of the laws, with the reader's line."""
        error = self._broken.get("an_answer_to_everything")
        return (("It raises", raised(error, self.answer)),) if error else ()

    # ---- right -----------------------------------------------------------------------------------

    def _quality(self):
        if any(case.changed_by(self.function) for case in self.checker.cases):
            return self._says("right, but", CHANGES)
        if borrowed := self._borrowed():
            return self._says("right, but", borrowed)
        if self.checker.large and self._slow():
            says = "It answers rightly. But it is slow: on a larger case more than "
            says += f"{SLOW} times as long as whole-array code. Which loop could be one operation?"
            return self._says("right, but", says)
        return self._says("right", "It passes every probe, plain and extreme.")

    def _borrowed(self):
        """What to say where the library does the work that is asked for."""
        used = set().union(*(library_functions(self.function, c) for c in self.checker.cases))
        if not self.checker.alone:
            used &= set(self.checker.studied)
        if not used:
            return ""
        names = ", ".join(f"`{name}`" for name in sorted(used))
        says = f"It answers rightly, but the work is done by {names} of `qkvlib`."
        return f"{says} Can you write it yourself?"

    def _slow(self):
        """Whether it takes far longer than the right one. Several tries: one may be disturbed."""
        large = self.checker.large
        limit = SLOW * min(seconds_of(self.kind.right, large) for _ in range(3))
        return all(seconds_of(self.function, large) > limit for _ in range(2))


def _lower(text):
    return text[:1].lower() + text[1:]
