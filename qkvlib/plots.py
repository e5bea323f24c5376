"""Pictures of attention, all in one look.

Queries are rows, keys are columns. Weights have one scale, from white (0) to dark blue (1);
scores and parameters have a diverging one, red below 0 and blue above. Every figure is
`WIDTH` inches wide on an opaque white ground, so that letters are equally large in all of them,
also on a phone. Arrays of NumPy and tensors of torch are drawn alike.

This is the only module that knows about colours. Matplotlib is imported when something is drawn;
it comes with the extra `plots`.
"""

import math
from functools import wraps

import numpy as np

from qkvlib.book.show import number
from qkvlib.patterns import Pattern

WIDTH = 4.5
FONT = 10
SMALLEST = 6.5  # points: below this, values in cells are left out

INK, QUIET, LINE = "#1f2328", "#59636e", "#d1d9e0"
BLUE, VERMILION, GREEN = "#0072b2", "#d55e00", "#009e73"
PURPLE, ORANGE, SKY = "#aa4499", "#e69f00", "#56b4e9"
WEIGHTS, SIGNED = "Blues", "RdBu"  # the two colour maps


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "qkvlib.plots draws with Matplotlib, which is not installed; "
            "try: pip install 'qkvlib[plots]'"
        ) from error
    return plt


def style():
    """The look of every figure, as a context manager: `with style(): ...`.

    All that this module draws is drawn inside it. A cell that draws by itself gets its axes from
    `figure` and needs it only for what is added with a look of its own, such as a legend.
    """
    plt = _pyplot()
    return plt.rc_context(
        {
            "font.family": "DejaVu Sans",  # comes with Matplotlib
            "font.size": FONT,
            "axes.titlesize": FONT,
            "axes.labelsize": FONT,
            "xtick.labelsize": FONT,
            "ytick.labelsize": FONT,
            "legend.fontsize": FONT,
            "figure.dpi": 160,
            "figure.facecolor": "white",
            "figure.constrained_layout.use": True,
            "savefig.facecolor": "white",
            "axes.facecolor": "white",
            "axes.edgecolor": LINE,
            "axes.labelcolor": QUIET,
            "axes.titlecolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "axes.prop_cycle": plt.cycler(color=[BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY]),
            "lines.linewidth": 2,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "xtick.major.size": 3,
            "ytick.major.size": 3,
            "legend.frameon": False,
        }
    )


def _styled(draw):
    @wraps(draw)
    def styled(*args, **kwargs):
        with style():
            return draw(*args, **kwargs)

    return styled


@_styled
def figure(rows=1, columns=1, *, height=2.8, **options):
    """A figure of the book's width with empty axes; `height` is that of one row, in inches.

    options: passed on to `plt.subplots`, such as sharex, sharey, width_ratios
    -> (Figure, Axes), or (Figure, array of Axes) as `plt.subplots` does

    >>> fig, (left, right) = figure(columns=2, height=2)
    >>> fig.get_size_inches().tolist()
    [4.5, 2.0]
    """
    plt = _pyplot()
    fig, axes = plt.subplots(rows, columns, figsize=(WIDTH, height * rows), **options)
    # A frame without a line: notebooks cut the ground off around what is drawn, and then each
    # figure would be enlarged by another factor.
    fig.add_artist(plt.Rectangle((0, 0), 1, 1, fill=False, linewidth=0))
    for ax in fig.axes:
        ax.tick_params(labelsize=FONT, color=LINE)
    return fig, axes


# ---- arrays at the door ------------------------------------------------------------------------


def _array(name, values, axes):
    if hasattr(values, "detach"):  # a torch tensor, of any device and dtype
        values = values.detach().cpu().double()
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != len(axes) or values.size == 0:
        raise ValueError(
            f"{name} must have {len(axes)} axes ({', '.join(axes)}), none empty, "
            f"got shape {values.shape}; "
            "pick one sequence and one head, or use head_grid for several heads"
        )
    return values


def _fit(name, values, shape, names):
    if values.shape != shape:
        raise ValueError(
            f"{name} must have shape {shape} to fit {names}, got {values.shape}; "
            "check the names, or transpose"
        )


def _check_rows(weights, wrong=False):
    """Refuse rows that are no attention weights."""
    if not ((weights >= 0) & (weights <= 1 + 1e-6)).all():
        low, high = np.min(weights), np.max(weights)
        raise ValueError(
            f"weights must lie between 0 and 1, got values from {number(low)} to {number(high)}; "
            "draw scores with matrix(...)"
        )
    sums = np.atleast_1d(weights.sum(-1))
    bad = (np.abs(sums - 1) > 1e-3) & (sums != 0)
    if bad.any() and not wrong:
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        row = where[0] if len(where) == 1 else where
        raise ValueError(
            f"weights must sum to 1 in every row (or be all 0), got {number(sums[where])} in row "
            f"{row}; a softmax over the keys comes last. "
            "To show a mistake on purpose: heatmap(..., wrong=True)"
        )


# ---- cells -------------------------------------------------------------------------------------


def _mesh(ax, values, rows, columns, cmap, limits):
    """Coloured cells, first row on top, names on the left and above, as in a printed table."""
    n_rows, n_columns = values.shape
    edges = {"edgecolors": LINE, "linewidth": 0.6} if max(values.shape) <= 32 else {}
    mesh = ax.pcolormesh(values, cmap=cmap, vmin=limits[0], vmax=limits[1], **edges)
    ax.set(xlim=(0, n_columns), ylim=(n_rows, 0), aspect="equal")
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_yticks(np.arange(n_rows) + 0.5, rows)
    ax.set_xticks(np.arange(n_columns) + 0.5, columns)
    names = ax.get_xticklabels()
    if max(name.get_window_extent().width for name in names) > 0.9 * _cell(ax, values.shape):
        ax.tick_params(axis="x", rotation=90)
    return mesh


def _cell(ax, shape):
    """The side of one cell in pixels, estimated before the layout settles."""
    extent = ax.get_window_extent()
    return min(extent.height / shape[0], extent.width / shape[1])


def _write(ax, mesh, texts):
    """Write a text into every cell, or add a colour bar where the cells are too small for it."""
    shape = len(texts), len(texts[0])
    longest = max(len(text) for row in texts for text in row)
    points = _cell(ax, shape) / ax.figure.dpi * 72
    size = min(FONT, points / (0.64 * max(longest, 2)))
    if size < SMALLEST:
        _colour_bar(mesh, ax, shrink=0.8)
        return
    for (i, j), rgba in zip(np.ndindex(shape), mesh.to_rgba(mesh.get_array().ravel())):
        dark = rgba[:3] @ (0.299, 0.587, 0.114) < 0.55
        middle = {"ha": "center", "va": "center"}
        ink = "white" if dark else INK
        ax.text(j + 0.5, i + 0.5, texts[i][j], fontsize=size, color=ink, **middle)


def _colour_bar(mesh, axes, shrink):
    low, high = mesh.get_clim()
    figure = mesh.axes.figure
    bar = figure.colorbar(mesh, ax=axes, shrink=shrink, ticks=[low, (low + high) / 2, high])
    bar.outline.set_visible(False)


def _own_axes(n_rows, n_columns):
    """A figure for one matrix, its cells at most 0.55 inches wide."""
    cell = min(0.55, 0.75 * WIDTH / n_columns)
    return figure(height=float(np.clip(cell * n_rows + 0.7, 1.2, 6)))[1]


def _short(weight):
    """.70 for 0.7; 0 and 1 only where they are exact."""
    return f"{weight:.0f}" if weight in (0, 1) else number(weight, 2).removeprefix("0")


@_styled
def heatmap(weights, *, queries, keys, ax=None, title=None, wrong=False):
    """Attention weights as a map: one row per query, one column per key.

    weights: (n_query, n_key), rows of numbers between 0 and 1 that sum to 1 or are all 0
    queries, keys: the names of rows and columns
    wrong: draw rows that do not sum to 1, to show a mistake; their sums are written beside them
    -> Axes. The colours always run from 0 to 1; small maps have their values written in

    Raises ValueError for rows that are no weights and for names that do not fit.

    >>> ax = heatmap([[1, 0], [0.25, 0.75]], queries=["he", "won"], keys=["he", "won"])
    >>> ax.collections[0].get_clim()
    (0.0, 1.0)
    """
    weights = _array("weights", weights, ("n_query", "n_key"))
    _fit("weights", weights, (len(queries), len(keys)), "queries and keys")
    _check_rows(weights, wrong)
    ax = ax or _own_axes(*weights.shape)
    mesh = _mesh(ax, weights, queries, keys, WEIGHTS, (0.0, 1.0))
    ax.set(xlabel="key", ylabel="query", title=title)
    _write(ax, mesh, [[_short(w) for w in row] for row in weights])
    if wrong:
        _write_sums(ax, weights.sum(-1))
    return ax


def _write_sums(ax, sums):
    beside = ax.secondary_yaxis("right")
    beside.set_yticks(np.arange(len(sums)) + 0.5, [f"= {number(total, 2)}" for total in sums])
    beside.tick_params(length=0)
    beside.spines[:].set_visible(False)
    for name, total in zip(beside.get_yticklabels(), sums):
        name.set_color(QUIET if abs(total - 1) <= 1e-3 else VERMILION)


@_styled
def matrix(values, *, rows, columns, ax=None, title=None, digits=2, limit=None, blank_zeros=False):
    """Scores, parameters or outputs as a map: red below 0, white at 0, blue above.

    values: (len(rows), len(columns)) finite numbers; digits: decimals, none for whole numbers
    limit: the size of a value drawn in full colour, by default the largest; give the same one
        to several maps that are to be compared
    blank_zeros: write nothing into cells that are 0
    -> Axes

    Raises ValueError for values that are not finite, too large for `limit`, or do not fit.

    >>> ax = matrix([[2, 0], [0, -1]], rows=["he", "won"], columns=["x", "y"])
    >>> ax.collections[0].get_clim()
    (-2.0, 2.0)
    """
    values = _array("values", values, ("rows", "columns"))
    _fit("values", values, (len(rows), len(columns)), "rows and columns")
    largest = float(np.abs(values).max())
    if not np.isfinite(largest):
        raise ValueError(
            "values must be finite, got NaN or infinity; draw scores before the mask, or weights"
        )
    limit = limit or largest or 1.0
    if largest > limit:
        raise ValueError(f"limit must be at least the largest value, {largest:.4g}, got {limit}")
    ax = ax or _own_axes(*values.shape)
    mesh = _mesh(ax, values, rows, columns, SIGNED, (-limit, limit))
    ax.set(title=title)
    whole = (values == np.round(values)).all()
    zero = "" if blank_zeros else "0"
    texts = [[number(v, 0 if whole else digits) if v else zero for v in row] for row in values]
    _write(ax, mesh, texts)
    return ax


def ring(ax, cells):
    """Draw a ring around some cells of a `heatmap` or a `matrix`.

    ax: what these functions returned; cells: Boolean array of the map's shape, True where a ring
    goes -> the Axes

    Raises ValueError for cells that do not fit the map.
    """
    plt = _pyplot()
    cells = _array("cells", cells, ("rows", "columns"))
    _fit("cells", cells, (int(ax.get_ylim()[0]), int(ax.get_xlim()[1])), "the map")
    for i, j in np.argwhere(cells):
        box = plt.Rectangle((j, i), 1, 1, fill=False, edgecolor=VERMILION, linewidth=2, zorder=3)
        box.set_clip_on(False)
        ax.add_patch(box)
    return ax


@_styled
def head_grid(weights, *, queries, keys, columns=3, titles=None):
    """The maps of all heads of a layer, side by side on one scale.

    weights: (heads, n_query, n_key); titles: one per head, by default "head 0" and so on
    -> Figure

    Raises ValueError as `heatmap` does.
    """
    plt = _pyplot()
    weights = _array("weights", weights, ("heads", "n_query", "n_key"))
    heads, n_query, n_key = weights.shape
    _fit("weights", weights, (heads, len(queries), len(keys)), "queries and keys")
    _check_rows(weights)
    titles = titles or [f"head {h}" for h in range(heads)]
    if len(titles) != heads:
        raise ValueError(f"titles must be one per head, {heads}, got {len(titles)}")
    n_rows = -(-heads // columns)
    below = 0.6 / n_rows  # the names of the keys, once under all rows
    height = 0.74 * WIDTH / columns * n_query / n_key + 0.3 + below
    fig, axes = figure(n_rows, columns, height=height, squeeze=False)
    for h, ax in enumerate(axes.flat):
        if h >= heads:
            ax.remove()
            continue
        mesh = _mesh(ax, weights[h], queries, keys, WEIGHTS, (0.0, 1.0))
        ax.set_title(titles[h])
        ax.xaxis.tick_bottom()
        below_is_empty = h + columns >= heads
        ax.tick_params(labelbottom=below_is_empty, labelleft=h % columns == 0, length=0)
        plt.setp(ax.get_xticklabels(), rotation=90)
    _colour_bar(mesh, fig.axes, shrink=min(1, 2 / n_rows))
    return fig


# ---- who may attend to whom --------------------------------------------------------------------


@_styled
def pattern(pattern, n_query, n_key=None, *, offset=None, ax=None, title=None):
    """Who may attend to whom: a cell is filled where the query of its row may read the key.

    pattern: a `qkvlib.patterns.Pattern`; n_query, n_key, offset: as in `pattern.array`
    -> Axes. Beside the rows and above the columns stand the positions

    Raises TypeError for what is no Pattern, ValueError for one with a mask for each batch item,
    and what `pattern.array` raises.

    >>> from qkvlib.patterns import causal, window
    >>> ax = pattern(causal & window(2), 3)
    >>> ax.collections[0].get_array().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    allowed, offset = _allowed(pattern, n_query, n_key, offset)
    ax = ax or _own_axes(*allowed.shape)
    _fill(ax, allowed, offset)
    ax.set(xlabel="key", ylabel="query", title=title)
    return ax


@_styled
def pattern_grid(patterns, n_query, n_key=None, *, offset=None, columns=3):
    """Several patterns side by side.

    patterns: a dict of Patterns by their titles; n_query, n_key, offset: as in `pattern.array`
    -> Figure

    Raises what `pattern` raises, and ValueError for no patterns.

    >>> from qkvlib.patterns import causal, window
    >>> fig = pattern_grid({"causal": causal, "window": window(2)}, 6, columns=2)
    >>> [ax.get_title() for ax in fig.axes]
    ['causal', 'window']
    """
    if not patterns:
        raise ValueError("patterns must hold at least one pattern, got none")
    filled = [_allowed(pattern, n_query, n_key, offset) for pattern in patterns.values()]
    n_query, n_key = filled[0][0].shape
    n_rows = -(-len(patterns) // columns)
    below = 0.5 / n_rows  # the positions of the keys, once under all rows
    height = 0.8 * WIDTH / columns * n_query / n_key + 0.3 + below
    fig, axes = figure(n_rows, columns, height=height, squeeze=False)
    for a, ax in enumerate(axes.flat):
        if a >= len(patterns):
            ax.remove()
            continue
        _fill(ax, *filled[a])
        ax.set_title(list(patterns)[a])
        ax.xaxis.tick_bottom()
        below_is_empty = a + columns >= len(patterns)
        ax.tick_params(labelbottom=below_is_empty, labelleft=a % columns == 0, length=0)
    fig.supxlabel("key", fontsize=FONT, color=QUIET)
    fig.supylabel("query", fontsize=FONT, color=QUIET)
    return fig


def _allowed(pattern, n_query, n_key, offset):
    """The pattern written out, and where its first query stands."""
    if not isinstance(pattern, Pattern):
        raise TypeError(
            f"pattern must be a qkvlib.patterns.Pattern, got {type(pattern).__name__}; "
            "draw an array with matrix(...)"
        )
    allowed = pattern.array(n_query, n_key, offset=offset)
    if allowed.ndim != 2 or not allowed.size:
        raise ValueError(
            "pattern must have one mask (n_query, n_key) with at least one query, "
            f"got shape {allowed.shape}; pick one batch item"
        )
    return allowed, allowed.shape[1] - allowed.shape[0] if offset is None else offset


def _fill(ax, allowed, offset):
    """Filled cells, with as many positions of queries and keys as there is room for."""
    from matplotlib.colors import ListedColormap

    n_query, n_key = allowed.shape
    positions = range(offset, offset + n_query), range(n_key)
    wide = 0.7 * FONT / 72 * ax.figure.dpi * max(len(str(p)) for row in positions for p in row)
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    step = next(step for step in steps if step * _cell(ax, allowed.shape) > wide)
    names = ["" if p % step else p for row in positions for p in row]
    colours = ListedColormap(["white", BLUE])
    _mesh(ax, allowed, names[:n_query], names[n_query:], colours, (0, 1))
    ax.tick_params(axis="x", rotation=0)
    ax.spines[:].set(visible=True, color=LINE)


# ---- one query and its words -------------------------------------------------------------------


@_styled
def arcs(words, weights_row, *, query, ax=None, title=None):
    """Arcs over a sentence, from one word to every word it reads; the thicker, the more.

    words: the sentence; weights_row: (n_key,), one row of weights; query: the seat of the word
    that reads (a number: a word may occur twice) -> Axes

    Raises ValueError for a row that is no row of weights or a seat outside the sentence.
    """
    from matplotlib.patches import Arc

    weights = _array("weights_row", weights_row, ("n_key",))
    _fit("weights_row", weights, (len(words),), "words")
    _check_rows(weights)
    n = len(words)
    if query not in range(n):
        raise ValueError(f"query must be a seat from 0 to {n - 1}, got {query!r}")
    ax = ax or figure(height=1.7)[1]
    ax.set(xlim=(-0.5, n - 0.5), ylim=(0, 0.5 * max(query, n - 1 - query) + 0.2), title=title)
    ax.axis("off")
    for key, weight in enumerate(weights):
        look = {"linewidth": 0.6 + 7 * weight, "edgecolor": BLUE, "alpha": 0.3 + 0.7 * weight}
        if weight and key == query:
            ax.add_patch(Arc((key, 0.26), 0.3, 0.52, **look))
        elif weight:
            span = abs(key - query)
            ax.add_patch(Arc(((key + query) / 2, 0), span, span, theta2=180, **look))
        below = {"textcoords": "offset points", "ha": "center", "va": "top"}
        asks = {"color": VERMILION, "fontweight": "bold"} if key == query else {}
        ax.annotate(words[key], (key, 0), (0, -4), **below, **asks)
        ax.annotate(_short(weight), (key, 0), (0, -18), color=QUIET, **below)
    return ax


@_styled
def bars(weights, *, words, labels=None, ax=None, title=None):
    """One or several rows of weights as bars over the words.

    weights: (n_key,) or (rows, n_key); labels: a name per row, for the legend -> Axes

    Raises ValueError for rows that are no weights, or names that do not fit.
    """
    several = np.ndim(weights) == 2
    weights = _array("weights", weights, ("rows", "n_key") if several else ("n_key",))
    weights = np.atleast_2d(weights)
    n_rows = len(weights)
    _fit("weights", weights, (len(labels) if labels else 1, len(words)), "labels and words")
    _check_rows(weights)
    ax = ax or figure(height=2.4)[1]
    seats, width = np.arange(len(words)), 0.8 / n_rows
    for r, row in enumerate(weights):
        ax.bar(
            seats + (r - (n_rows - 1) / 2) * width, row, 0.92 * width, label=labels and labels[r]
        )
    ax.set(ylim=(0, 1), yticks=[0, 0.5, 1], ylabel="weight", title=title)
    ax.set_xticks(seats, words)
    ax.tick_params(axis="x", length=0)
    if labels:
        ax.legend(ncols=n_rows, loc="upper right", borderaxespad=0, handlelength=1)
    return ax


@_styled
def plane(query, keys, *, words, weights, name, lines=(-2, 0, 2, 4), ax=None, title=None):
    """Keys as dots and one query as an arrow, for d_k = 2.

    query: (2,); keys: (n_key, 2); words: a name per key; weights: (n_key,), the area of each dot
    name: what stands at the arrow; lines: the scores whose lines are drawn, dashed: every key
        on one line has the same dot product with the query
    -> Axes. Words at the same place share one label

    Raises ValueError as `heatmap` does, and for a query of (0, 0).
    """
    query = _array("query", query, ("d_k",))
    keys = _array("keys", keys, ("n_key", "d_k"))
    weights = _array("weights", weights, ("n_key",))
    _fit("query", query, (2,), "a plane")
    _fit("keys", keys, (len(words), 2), "words and a plane")
    _fit("weights", weights, (len(words),), "words")
    _check_rows(weights)
    if not query.any():
        raise ValueError("query must not be (0, 0), which has the same score with every key")
    ax = ax or figure(height=4)[1]
    points = np.vstack([keys, query, np.zeros(2)])
    low, high = points.min(0) - 0.9, points.max(0) + 0.9
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", title=title)
    ax.axis("off")
    ax.axhline(0, color=LINE, linewidth=0.8, zorder=0)
    ax.axvline(0, color=LINE, linewidth=0.8, zorder=0)
    if len(lines):
        _score_lines(ax, query, lines)
    arrow = {"arrowstyle": "-|>", "color": VERMILION, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", query, (0, 0), arrowprops=arrow)
    _label(ax, name, query, (0, 10 if query[1] > 0 else -10), VERMILION, fontweight="bold")
    area = 20 + 400 * weights
    ax.scatter(*keys.T, s=area, color=BLUE, linewidth=0, zorder=3)
    for place in np.unique(keys, axis=0):
        here = (keys == place).all(-1)
        names = "\n".join(word for word, is_here in zip(words, here) if is_here)
        gap = 4 + math.sqrt(area[here].max() / math.pi)
        side = "right" if place[0] > 0 else "left"
        _label(ax, names, place, (gap if side == "right" else -gap, 0), INK, side)
    return ax


def _label(ax, text, place, offset, colour, side="middle", **look):
    """A text beside a place, readable where lines run behind it."""
    from matplotlib.patheffects import withStroke

    align = {"left": "right", "right": "left", "middle": "center"}[side]
    look |= {"ha": align, "va": "center", "color": colour, "zorder": 4}
    look["path_effects"] = [withStroke(linewidth=3, foreground="white")]
    ax.annotate(text, place, offset, textcoords="offset points", **look)


def _score_lines(ax, query, scores):
    """The dashed lines of all keys k with the same query . k, the score written at one end.

    Steep lines run from the bottom edge to the top, the others from left to right; the box grows
    until every line has its end.
    """
    across = int(abs(query[1]) > abs(query[0]))
    limits = [ax.get_xlim(), ax.get_ylim()]
    edges = limits[1 - across]
    ends = [(np.array(scores) - query[1 - across] * edge) / query[across] for edge in edges]
    grown = [
        (min(limits[across][0], *end - 0.3), max(limits[across][1], *end + 0.3)) for end in ends
    ]
    last = int(np.ptp(grown[1]) < np.ptp(grown[0]))
    (ax.set_ylim if across else ax.set_xlim)(grown[last])
    for score, *end in zip(scores, *ends):
        line = (end, edges) if across == 0 else (edges, end)
        ax.plot(*line, color=QUIET, linewidth=0.8, dashes=(4, 3), zorder=1)
        shift = np.roll((0, 9 if last else -9), across)
        _label(ax, number(score), [point[last] for point in line], shift, QUIET)
