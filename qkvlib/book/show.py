"""Numbers and tables as the chapters print them.

Every number goes through one function that rounds and turns -0.0 into 0.0, so that a table
prints the same on every processor.
"""

import html


def number(x, digits=3):
    """One number as text, with a fixed count of decimals and never a negative zero.

    x: a float, an int or a Boolean, of Python, NumPy or torch -> str
    An int stays an int and a Boolean reads True or False, whatever `digits` says.

    Raises TypeError for anything else.

    >>> number(0.70399), number(-1e-16), number(5), number(True)
    ('0.704', '0.000', '5', 'True')
    """
    value = x.item() if getattr(x, "ndim", None) == 0 else x
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return f"{round(value, digits) + 0.0:.{digits}f}"
    raise TypeError(
        f"x must be a number or a Boolean, got {type(x).__name__}; "
        "print arrays with table(values, rows=..., columns=...)"
    )


def table(values, *, rows, columns, digits=3, caption=None):
    """A table with named rows and columns, for the last line of a cell.

    values: (len(rows), len(columns)) numbers, Booleans or strings: an array or lists
    rows, columns: the names, one per row and per column
    digits: decimals of every float; caption: a line above the table
    -> a `Table`, which Jupyter shows as HTML and a plain Python prompt as aligned text

    Raises ValueError when values and names do not fit, TypeError for other kinds of cells.

    >>> table([[2.0, -0.0], [0.5, 1.25]], rows=["he", "won"], columns=["x", "y"], digits=2)
            x     y
    he   2.00  0.00
    won  0.50  1.25
    """
    rows, columns = [str(name) for name in rows], [str(name) for name in columns]
    cells = values.tolist() if hasattr(values, "tolist") else list(values)
    if any(isinstance(row, str) or not hasattr(row, "__len__") for row in cells):
        raise ValueError(
            f"values must have two axes, {len(rows)} rows by {len(columns)} columns, got one axis; "
            "write a single row as values[None]"
        )
    widths = sorted({len(row) for row in cells})
    if len(cells) != len(rows) or widths != [len(columns)]:
        raise ValueError(
            f"values must be {len(rows)} rows by {len(columns)} columns to fit the names, "
            f"got {len(cells)} rows of {' or '.join(map(str, widths)) or 'no'} cells; "
            "check the names, or transpose"
        )
    text = [[c if isinstance(c, str) else number(c, digits) for c in row] for row in cells]
    words = [any(isinstance(row[j], str) for row in cells) for j in range(len(columns))]
    return Table(text, rows, columns, words, caption)


class Table:
    """Named rows and columns of finished text; made by `table`."""

    def __init__(self, cells, rows, columns, words, caption):
        self._cells, self._rows, self._columns = cells, rows, columns
        self._words = words  # per column: True where it holds words, which align left
        self._caption = caption

    def __repr__(self):
        grid = [["", *self._columns]]
        grid += [[name, *row] for name, row in zip(self._rows, self._cells)]
        widths = [max(map(len, column)) for column in zip(*grid)]
        left = [True, *self._words]
        lines = [
            "  ".join(
                cell.ljust(width) if is_left else cell.rjust(width)
                for cell, width, is_left in zip(line, widths, left)
            ).rstrip()
            for line in grid
        ]
        return "\n".join([self._caption, *lines] if self._caption else lines)

    def _repr_html_(self):
        align = ["left" if words else "right" for words in self._words]
        head = "".join(
            f'<th scope="col" style="text-align: {side}">{html.escape(name)}</th>'
            for name, side in zip(self._columns, align)
        )
        body = "\n".join(
            f'<tr><th scope="row" style="text-align: left">{html.escape(name)}</th>'
            + "".join(
                f'<td style="text-align: {side}">{html.escape(cell)}</td>'
                for cell, side in zip(row, align)
            )
            + "</tr>"
            for name, row in zip(self._rows, self._cells)
        )
        caption = f"<caption>{html.escape(self._caption)}</caption>\n" if self._caption else ""
        # "dataframe" is the class that themes and notebooks know how to draw
        return (
            f'<table class="dataframe">\n{caption}<thead><tr><td></td>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table>"
        )
