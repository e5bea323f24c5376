"""Numbers and tables as they are printed: the same on every processor, and readable by ear."""

from xml.etree import ElementTree

import numpy as np
import pytest

from qkvlib.book.show import number, table


@pytest.mark.parametrize(
    ("x", "digits", "text"),
    [
        (0.70399, 3, "0.704"),
        (-0.0, 3, "0.000"),
        (-4e-16, 3, "0.000"),
        (-0.00049, 3, "0.000"),
        (-0.0006, 3, "-0.001"),
        (-0.4, 0, "0"),
        (1025.3, 1, "1025.3"),
        (float("nan"), 3, "nan"),
        (-float("inf"), 3, "-inf"),
        (7, 3, "7"),
        (True, 3, "True"),
        (np.float32(0.5), 2, "0.50"),
        (np.int64(7), 3, "7"),
        (np.bool_(False), 3, "False"),
        (np.array(-0.0), 1, "0.0"),
    ],
)
def test_number(x, digits, text):
    assert number(x, digits) == text


@pytest.mark.parametrize("x", [None, "1", 1j, np.ones(1), [1.0]])
def test_number_refuses(x):
    with pytest.raises(TypeError, match=r"x must be a number or a Boolean, got \w+"):
        number(x)


def test_text_is_aligned():
    t = table(
        [[-0.0, 10, "to Paul", True], [-1.25, 5, "to", np.bool_(False)]],
        rows=["he", "Emma"],
        columns=["x", "count", "reads", "right"],
        digits=2,
        caption="Two words",
    )
    assert repr(t).splitlines() == [
        "Two words",
        "          x  count  reads    right",
        "he     0.00     10  to Paul   True",
        "Emma  -1.25      5  to       False",
    ]


def test_html_has_headers_for_rows_and_columns():
    t = table(
        np.array([[-0.0, 0.25, 1.0]]), rows=["a<b"], columns=["x", "y&z", "w"], caption="One & only"
    )
    root = ElementTree.fromstring(t._repr_html_())
    assert root.findtext("caption") == "One & only"
    assert [th.text for th in root.iter("th") if th.get("scope") == "col"] == ["x", "y&z", "w"]
    assert [th.text for th in root.iter("th") if th.get("scope") == "row"] == ["a<b"]
    assert [td.text for td in root.find("tbody").iter("td")] == ["0.000", "0.250", "1.000"]
    assert "caption" not in table([[1]], rows="a", columns="b")._repr_html_()


@pytest.mark.parametrize(
    ("values", "came"),
    [
        (np.zeros((2, 3)), "got 2 rows of 3 cells; check the names, or transpose"),
        (np.zeros((2, 2)), "got 2 rows of 2 cells"),
        ([[1, 2], [3], [4, 5]], "got 3 rows of 1 or 2 cells"),
        (np.zeros((0, 2)), "got 0 rows of no cells"),
        (np.zeros(2), "got one axis; write a single row as values"),
        (["ab", "cd", "ef"], "got one axis"),
    ],
)
def test_values_that_do_not_fit_the_names_are_refused(values, came):
    with pytest.raises(ValueError, match=f"values must .* 3 rows by 2 columns.*{came}"):
        table(values, rows=["a", "b", "c"], columns=["x", "y"])


def test_three_axes_are_refused():
    with pytest.raises(TypeError, match="must be a number"):
        table(np.zeros((1, 1, 4)), rows="a", columns="b")
