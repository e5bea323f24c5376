"""The pictures: what they refuse, that they show what they are given, and that they can be read."""

import io
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Arc
from matplotlib.text import Text

from qkvlib import plots
from qkvlib.book.example import COORDINATES, HEAD_A, VARIANTS, WORDS, embed
from qkvlib.patterns import (
    blocks,
    causal,
    dilated,
    documents,
    global_tokens,
    prefix,
    random_blocks,
    strided,
    window,
)

PHONE = 358  # CSS pixels that a figure gets on a screen of 390


@pytest.fixture(autouse=True)
def _without_a_window():
    plt.switch_backend("agg")
    yield
    plt.close("all")


def head_a(words=WORDS):
    """Query, key and weights of head A."""
    x = embed(words)
    query, key = x @ HEAD_A.W_Q, x @ HEAD_A.W_K
    e = np.exp(query @ key.T / np.sqrt(2))
    return query, key, e / e.sum(-1, keepdims=True)


QUERY, KEY, P = head_a()
TOKENS = ["[CLS]", "paul", "told", "emma", "he", "won", "[SEP]"]


def random_weights(*shape):
    return np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.3), shape[:-1])


def texts(parent):
    """Every visible text of a figure or of some axes."""
    parent.figure.draw_without_rendering()
    found = []
    for ax in parent.axes if isinstance(parent, Figure) else [parent]:
        found += ax.findobj(Text) if ax.axison else [ax.title, *ax.texts]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def words_in(parent):
    return [t.get_text() for t in texts(parent)]


def png(fig):
    """What a notebook stores: cut to what is drawn."""
    buffer = io.BytesIO()
    fig.savefig(buffer, bbox_inches="tight")
    buffer.seek(0)
    return plt.imread(buffer)


PATTERNS = {
    "causal": causal,
    "window(3)": window(3),
    "dilated(2, 3)": dilated(2, 3),
    "strided(4)": strided(4),
    "blocks(4)": blocks(4),
    "global_tokens(2)": global_tokens(2),
    "random_blocks": random_blocks(64, 4, 2, np.random.default_rng(3)),
    "prefix(4)": prefix(4),
    "documents": documents([0] * 5 + [1] * 8 + [2] * 51),
    "causal | prefix(4)": causal | prefix(4),
    "window | global": window(3) | global_tokens(1),
}


# ---- every figure of chapters 1 to 3, for the checks that hold for all of them ------------------


def draw_heatmap():
    return plots.heatmap(P, queries=WORDS, keys=WORDS).figure


def draw_wrong():
    return plots.heatmap(np.tri(5) * P, queries=WORDS, keys=WORDS, wrong=True).figure


def draw_scores():
    return plots.matrix(QUERY @ KEY.T / 2**0.5, rows=WORDS, columns=WORDS).figure


def draw_input():
    return plots.matrix(embed(WORDS), rows=WORDS, columns=COORDINATES).figure


def draw_rules():
    fig, axes = plots.figure(columns=2, height=2.6)
    for ax, noise in zip(axes, (0, 0.3)):
        M = HEAD_A.W_Q @ HEAD_A.W_K.T - noise
        plots.matrix(M, rows=COORDINATES, columns=COORDINATES, ax=ax, limit=3, blank_zeros=True)
    return fig


def draw_heads():
    return plots.head_grid(random_weights(12, 7, 7), queries=TOKENS, keys=TOKENS)


def draw_arcs():
    fig, axes = plots.figure(rows=3, height=1.5)
    rows = [0.2] * 5, [0, 0, 1, 0, 0], P[3]
    for ax, row, title in zip(axes, rows, ("average", "offset", "match")):
        plots.arcs(WORDS, row, query=3, ax=ax, title=title)
    return fig


def draw_bars():
    rows = random_weights(3, 7)
    return plots.bars(rows, words=TOKENS, labels=["he", "she", "they"]).figure


def draw_planes():
    fig, axes = plots.figure(columns=2, height=3)
    for ax, word in zip(axes, ("he", "she")):
        query, key, weights = head_a(VARIANTS[word])
        asks = f"{word} asks"
        plots.plane(query[3], key, words=VARIANTS[word], weights=weights[3], name=asks, ax=ax)
    return fig


def draw_pattern():
    return plots.pattern(causal & window(3), 5, 12, title="causal & window(3)").figure


def draw_long_pattern():
    return plots.pattern(window(9) | global_tokens(3), 120, offset=80).figure


def draw_patterns():
    return plots.pattern_grid(PATTERNS, 16)


FIGURES = [
    draw_heatmap,
    draw_wrong,
    draw_scores,
    draw_input,
    draw_rules,
    draw_heads,
    draw_arcs,
    draw_bars,
    draw_planes,
    draw_pattern,
    draw_long_pattern,
    draw_patterns,
]


@pytest.fixture(scope="module", params=FIGURES, ids=lambda draw: draw.__name__)
def fig(request):
    return request.param()


def test_no_two_texts_collide(fig):
    boxes = [(t.get_text(), t.get_window_extent().padded(-1)) for t in texts(fig)]
    assert len(boxes) > 5
    for i, (one, box) in enumerate(boxes):
        for other, its_box in boxes[:i]:
            assert not box.overlaps(its_box), f"{one!r} lies on {other!r}"


def test_letters_are_large_enough_on_a_phone(fig):
    pixels = png(fig).shape[1]
    for text in texts(fig):
        size = text.get_fontsize() / 72 * fig.dpi * PHONE / pixels
        assert size > 6.5, f"{text.get_text()!r} is {size:.1f} pixels high"


def test_all_figures_are_equally_wide_and_opaque(fig):
    picture = png(fig)
    assert picture.shape[1] == pytest.approx(752, abs=1)  # (4.5 + 2 * 0.1) inches of 160 pixels
    assert (picture[..., 3] == 1).all()
    assert (picture[[0, 0, -1, -1], [0, -1, 0, -1], :3] == 1).all()


def test_one_style_and_nothing_left_behind():
    before = dict(plt.rcParams)
    fig = draw_heads()
    plots.figure()
    assert dict(plt.rcParams) == before
    assert {t.get_fontsize() for t in texts(fig)} == {plots.FONT}
    with plots.style():
        assert plt.rcParams["figure.facecolor"] == "white"


# ---- heatmap -----------------------------------------------------------------------------------

NOT_WEIGHTS = {
    "scores": (QUERY @ KEY.T, "between 0 and 1, got values from -2.000 to 4.000"),
    "negative": ([[0.75, 0.5, -0.25]], "between 0 and 1, got values from -0.250 to 0.750"),
    "above 1": ([[2.0, 1.0]], "between 0 and 1, got values from 1.000 to 2.000"),
    "nan": ([[np.nan, 1.0]], "between 0 and 1, got values from nan to nan"),
    "hardly less than 1": ([[0.5, 0.498]], "sum to 1 in every row .*got 0.998 in row 0"),
    "hardly more than 1": ([[0.5, 0.502]], "sum to 1 in every row .*got 1.002 in row 0"),
    "mask after softmax": (P * np.tri(5), "sum to 1 in every row .*got 0.393 in row 0"),
    "softmax over queries": (P.T, "sum to 1 in every row .*got 1.534 in row 0"),
}


@pytest.mark.parametrize(("weights", "message"), NOT_WEIGHTS.values(), ids=NOT_WEIGHTS)
def test_rows_that_are_not_weights_are_refused(weights, message):
    n_query, n_key = np.shape(weights)
    names = {"queries": ["q"] * n_query, "keys": ["k"] * n_key}
    for refuses in (
        lambda: plots.heatmap(weights, **names),
        lambda: plots.bars(weights, words=names["keys"], labels=names["queries"]),
    ):
        with pytest.raises(ValueError, match=f"weights must {'lie ' * ('lie' in message)}"):
            refuses()
        with pytest.raises(ValueError, match=message):
            refuses()
    with pytest.raises(ValueError, match="weights must"):
        plots.head_grid(np.stack([weights, weights]), **names)
    with pytest.raises(ValueError, match="weights must"):
        plots.arcs(names["keys"], weights[0], query=0)
    with pytest.raises(ValueError, match=r"got 0\.500 in row 0;"):
        plots.arcs("ab", [0.25, 0.25], query=0)


def test_head_grid_names_the_head_and_row_at_fault():
    weights = random_weights(3, 4, 5)
    weights[2, 1] /= 2
    with pytest.raises(ValueError, match=r"got 0\.500 in row \(2, 1\)"):
        plots.head_grid(weights, queries="abcd", keys="vwxyz")
    with pytest.raises(ValueError, match="titles must be one per head, 2, got 3"):
        plots.head_grid(weights[:2], queries="abcd", keys="vwxyz", titles=["a", "b", "c"])


def test_a_row_that_may_read_nothing_is_a_row_of_weights():
    plots.heatmap([[0, 0], [0.5, 0.5]], queries="ab", keys="xy")


def test_a_mistake_is_drawn_only_on_purpose_and_with_its_sums():
    ax = plots.heatmap(np.tri(5) * P, queries=WORDS, keys=WORDS, wrong=True)
    sums = {t.get_text(): to_hex(t.get_color()) for t in texts(ax) if t.get_text()[0] == "="}
    assert list(sums) == ["= 0.39", "= 0.40", "= 0.81", "= 0.96", "= 1.00"]
    assert set(list(sums.values())[:4]) == {plots.VERMILION}
    assert sums["= 1.00"] == plots.QUIET
    with pytest.raises(ValueError, match="between 0 and 1"):
        plots.heatmap(QUERY @ KEY.T, queries=WORDS, keys=WORDS, wrong=True)


def test_rows_are_queries_columns_are_keys_and_the_scale_is_0_to_1():
    weights = random_weights(2, 3) * 0.5 + np.array([0.5, 0, 0])
    ax = plots.heatmap(weights, queries=["q0", "q1"], keys=["k0", "k1", "k2"], title="one")
    (mesh,) = ax.collections
    np.testing.assert_array_equal(np.reshape(mesh.get_array(), (2, 3)), weights)
    assert mesh.get_clim() == (0, 1)
    assert mesh.get_cmap().name == "Blues"
    assert [t.get_text() for t in ax.get_yticklabels()] == ["q0", "q1"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["k0", "k1", "k2"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("key", "query", "one")
    ax.figure.draw_without_rendering()
    first, second = (t.get_window_extent() for t in ax.get_yticklabels())
    assert first.y0 > second.y1, "the first query is on top"
    place = {t.get_text(): t.get_position() for t in ax.texts}
    assert place[f"{weights[1, 2]:.2f}".removeprefix("0")] == (2.5, 1.5)


def test_a_square_map_is_not_transposed():
    """Its shape would not show it."""
    values = np.array([[0.9, 0.1], [0.3, 0.7]])
    for ax in (
        plots.heatmap(values, queries="ab", keys="ab"),
        plots.matrix(values, rows="ab", columns="ab"),
        plots.head_grid(values[None], queries="ab", keys="ab").axes[0],
        plots.pattern(causal, 2),
    ):
        shown = np.reshape(ax.collections[0].get_array(), (2, 2))
        assert shown[0, 1] < shown[1, 0]


def test_values_say_exact_zeros_and_ones():
    ax = plots.heatmap([[1, 0, 0], [0.996, 0.004, 0]], queries="ab", keys="xyz")
    assert [t.get_text() for t in ax.texts] == ["1", "0", "0", "1.00", ".00", "0"]


def test_ink_is_light_on_dark_cells():
    ax = plots.heatmap([[0.95, 0.05]], queries="a", keys="xy")
    assert [to_hex(t.get_color()) for t in ax.texts] == ["#ffffff", plots.INK]


def test_cells_too_small_for_values_get_a_colour_bar():
    ax = plots.heatmap(random_weights(20, 24), queries="q" * 20, keys="k" * 24)
    assert not ax.texts
    assert len(ax.figure.axes) == 2
    assert words_in(ax.figure.axes[1]) == ["0.0", "0.5", "1.0"]
    scores = np.linspace(-3, 2, 20 * 24).reshape(20, 24)
    ax = plots.matrix(scores, rows="q" * 20, columns="k" * 24)
    assert ax.figure.axes[1].get_yticks().tolist() == [-3, 0, 3]


@pytest.mark.parametrize("shape", [(3, 2), (2, 2), (2, 4)])
def test_names_that_do_not_fit_are_refused(shape):
    weights = np.full(shape, 1 / shape[1])
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\) to fit .*, got"):
        plots.heatmap(weights, queries="ab", keys="xyz")
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\) to fit .*, got"):
        plots.matrix(weights, rows="ab", columns="xyz")
    with pytest.raises(ValueError, match=r"must have shape \(1, 2, 3\) to fit .*, got"):
        plots.head_grid(weights[None], queries="ab", keys="xyz")
    with pytest.raises(ValueError, match=r"must have 2 axes \(n_query, n_key\), .* got shape"):
        plots.heatmap(weights[None], queries="ab", keys="xyz")
    with pytest.raises(ValueError, match=r"must have 2 axes .* none empty, got shape \(0, "):
        plots.heatmap(weights[:0], queries="", keys="xyz")
    with pytest.raises(ValueError, match=r"cells must have shape \(2, 3\) to fit the map"):
        plots.ring(plots.matrix(np.ones((2, 3)), rows="ab", columns="xyz"), weights > 0)


def test_tensors_are_drawn_like_arrays():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float64, torch.bfloat16):
        tensor = torch.tensor([[0.25, 0.75]], dtype=dtype, requires_grad=True)
        (mesh,) = plots.heatmap(tensor, queries="a", keys="xy").collections
        np.testing.assert_array_equal(np.ravel(mesh.get_array()), [0.25, 0.75])


# ---- matrix ------------------------------------------------------------------------------------


def test_a_matrix_has_a_scale_symmetric_about_zero():
    ax = plots.matrix([[3, 0, -1], [0, 2, 1]], rows="ab", columns="xyz")
    (mesh,) = ax.collections
    assert mesh.get_clim() == (-3, 3)
    assert np.reshape(mesh.get_array(), (2, 3)).tolist() == [[3, 0, -1], [0, 2, 1]]
    assert [t.get_text() for t in ax.texts] == ["3", "0", "-1", "0", "2", "1"]
    red, white, blue = (mesh.to_rgba(v)[:3] for v in (-3, 0, 3))
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert min(white) > 0.95
    same = plots.matrix([[0.5, -0.25]], rows="a", columns="xy", limit=3, digits=1)
    assert same.collections[0].get_clim() == (-3, 3)
    assert [t.get_text() for t in same.texts] == ["0.5", "-0.2"]


def test_zeros_may_be_blank_and_are_never_negative():
    values = np.array([[-0.0, 1.5], [-1e-16, 0.0]])
    shown = plots.matrix(values, rows="ab", columns="xy")
    assert [t.get_text() for t in shown.texts] == ["0", "1.50", "0.00", "0"]
    blank = plots.matrix(values, rows="ab", columns="xy", blank_zeros=True)
    assert [t.get_text() for t in blank.texts] == ["", "1.50", "0.00", ""]
    zeros = plots.matrix(np.zeros((2, 2)), rows="ab", columns="xy")
    assert zeros.collections[0].get_clim() == (-1, 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_matrix_refuses_what_is_not_finite(value):
    with pytest.raises(ValueError, match="values must be finite, got NaN or infinity"):
        plots.matrix([[1, value]], rows="a", columns="xy")


def test_a_limit_below_a_value_is_refused():
    with pytest.raises(ValueError, match="limit must be at least the largest value, 3, got 2"):
        plots.matrix([[1, -3]], rows="a", columns="xy", limit=2)


def test_rings_go_around_the_marked_cells():
    ax = plots.matrix(np.ones((2, 3)), rows="ab", columns="xyz")
    plots.ring(ax, [[False, False, True], [False, True, False]])
    assert [patch.get_xy() for patch in ax.patches] == [(2, 0), (1, 1)]


# ---- patterns ----------------------------------------------------------------------------------


def filled(ax):
    """Where cells have the colour of what is allowed, and not white."""
    (mesh,) = ax.collections
    colours = np.apply_along_axis(to_hex, -1, mesh.to_rgba(mesh.get_array()))
    assert set(colours.ravel()) <= {plots.BLUE, "#ffffff"}
    return colours == plots.BLUE


@pytest.mark.parametrize("offset", [None, -3])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_filled_where_it_allows(name, offset):
    ax = plots.pattern(PATTERNS[name], 5, 9, offset=offset, title=name)
    np.testing.assert_array_equal(filled(ax), PATTERNS[name].array(5, 9, offset=offset))
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("key", "query", name)
    first = 4 if offset is None else offset
    assert [t.get_text() for t in ax.get_yticklabels()] == [str(first + i) for i in range(5)]
    assert [t.get_text() for t in ax.get_xticklabels()] == [str(j) for j in range(9)]
    ax.figure.draw_without_rendering()
    top, *_, bottom = (t.get_window_extent() for t in ax.get_yticklabels())
    assert top.y0 > bottom.y1


def test_all_or_nothing_is_drawn_in_its_own_colour():
    assert filled(plots.pattern(prefix(3), 2, 3)).all()
    assert not filled(plots.pattern(prefix(0), 2, 3)).any()


def test_as_many_positions_are_written_as_there_is_room_for():
    ax = plots.pattern(causal, 100, offset=-5)
    named = {t.get_text(): p for t, p in zip(ax.get_yticklabels(), ax.get_yticks())}
    assert named.pop("") > 0
    assert list(named) == [str(p) for p in range(0, 95, 10)]
    assert {int(p) - where for p, where in named.items()} == {-5.5}
    assert {t.get_rotation() for t in ax.get_xticklabels()} == {0}


def test_patterns_stand_side_by_side_in_one_grid():
    fig = plots.pattern_grid(PATTERNS, 6, 8, offset=20, columns=4)
    assert [ax.get_title() for ax in fig.axes] == list(PATTERNS)
    for ax, pattern in zip(fig.axes, PATTERNS.values()):
        np.testing.assert_array_equal(filled(ax), pattern.array(6, 8, offset=20))
    words = [words_in(ax) for ax in fig.axes]
    assert [a for a, here in enumerate(words) if "20" in here] == [0, 4, 8]
    assert [a for a, here in enumerate(words) if "0" in here] == [7, 8, 9, 10]
    tops = [round(ax.get_position().y1, 3) for ax in fig.axes]
    assert len(set(tops)) == 3


def test_only_patterns_are_drawn_as_patterns():
    for wrong in (causal.array(3), None, "causal", lambda i, j: j <= i):
        with pytest.raises(TypeError, match=r"must be a qkvlib.patterns.Pattern, got .*matrix"):
            plots.pattern(wrong, 3)
        with pytest.raises(TypeError, match=r"must be a qkvlib.patterns.Pattern, got .*matrix"):
            plots.pattern_grid({"wrong": wrong}, 3)
    several = documents([[1, 1, 2], [1, 2, 2]])
    with pytest.raises(ValueError, match=r"got shape \(2, 3, 3\); pick one batch item"):
        plots.pattern(several, 3)
    with pytest.raises(ValueError, match=r"at least one query, got shape \(0, 3\)"):
        plots.pattern(causal, 0, 3)
    with pytest.raises(ValueError, match="patterns must hold at least one pattern, got none"):
        plots.pattern_grid({}, 3)


# ---- the others --------------------------------------------------------------------------------


def test_head_grid_shows_every_head_on_one_scale():
    weights = random_weights(5, 3, 4)
    fig = plots.head_grid(weights, queries="abc", keys="wxyz", columns=3)
    *maps, bar = fig.axes
    assert [ax.get_title() for ax in maps] == [f"head {h}" for h in range(5)]
    for ax, head in zip(maps, weights):
        (mesh,) = ax.collections
        assert mesh.get_clim() == (0, 1)
        np.testing.assert_array_equal(np.reshape(mesh.get_array(), (3, 4)), head)
    assert words_in(bar) == ["0.0", "0.5", "1.0"]
    assert ["w" in words_in(ax) for ax in maps] == [False, False, True, True, True]
    assert ["b" in words_in(ax) for ax in maps] == [True, False, False, True, False]


def test_arcs_go_from_the_query_to_what_it_reads_the_thicker_the_more():
    ax = plots.arcs(WORDS, [0.6, 0, 0.1, 0.3, 0], query=3)
    arcs = [patch for patch in ax.patches if isinstance(patch, Arc)]
    paul, emma, itself = arcs
    assert (paul.get_center()[0], paul.get_width()) == (1.5, 3)
    assert (emma.get_center()[0], emma.get_width()) == (2.5, 1)
    assert itself.get_center()[0] == 3
    assert [arc.get_linewidth() for arc in arcs] == pytest.approx([4.8, 1.3, 2.7])
    assert [arc.get_alpha() for arc in arcs] == pytest.approx([0.72, 0.37, 0.51])
    labels = {t.get_text(): t for t in ax.texts}
    assert [w for w, t in labels.items() if t.get_color() == plots.VERMILION] == ["he"]
    assert [t.xy[0] for t in ax.texts if t.get_text() == ".30"] == [3]


@pytest.mark.parametrize("query", [-1, 5, "he", None])
def test_arcs_need_a_seat(query):
    with pytest.raises(ValueError, match="query must be a seat from 0 to 4, got"):
        plots.arcs(WORDS, P[3], query=query)


def test_arcs_name_the_row_that_does_not_fit():
    with pytest.raises(
        ValueError, match=r"weights_row must have shape \(5,\) to fit words, got \("
    ):
        plots.arcs(WORDS, P[3, :4], query=3)
    with pytest.raises(ValueError, match=r"weights_row must have 1 axes \(n_key\), .* got shape"):
        plots.arcs(WORDS, P, query=3)


def test_bars_stand_over_their_words():
    rows = np.array([[0.7, 0.1, 0.2], [0.1, 0.6, 0.3]])
    ax = plots.bars(rows, words="xyz", labels=["he", "she"])
    assert ax.get_ylim() == (0, 1)
    for row, container in zip(rows, ax.containers):
        assert [bar.get_height() for bar in container] == row.tolist()
    lefts, rights = ([bar.get_center()[0] for bar in c] for c in ax.containers)
    np.testing.assert_allclose(np.add(lefts, rights) / 2, [0, 1, 2], atol=1e-12)
    assert np.greater(rights, lefts).all()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["he", "she"]
    assert plots.bars(rows[0], words="xyz").get_legend() is None
    with pytest.raises(ValueError, match=r"weights must have shape \(1, 3\)"):
        plots.bars(rows, words="xyz")


@pytest.mark.parametrize("word", ["he", "she"])
def test_the_plane_shows_scores_as_lines_and_weights_as_areas(word):
    query, key, weights = head_a(VARIANTS[word])
    ax = plots.plane(query[3], key, words=VARIANTS[word], weights=weights[3], name="q")
    dashed = [line for line in ax.lines if line.is_dashed()]
    for score, line in zip((-2, 0, 2, 4), dashed, strict=True):
        np.testing.assert_allclose(line.get_xydata() @ query[3], score, atol=1e-12)
    ends = [t.xy for t in ax.texts if t.get_text() in {"-2", "0", "2", "4"}]
    np.testing.assert_allclose(np.array(ends) @ query[3], [-2, 0, 2, 4], atol=1e-12)
    assert all(ax.viewLim.padded(1e-9).contains(*end) for end in ends)
    (dots,) = ax.collections
    np.testing.assert_array_equal(dots.get_offsets(), key)
    np.testing.assert_allclose(dots.get_sizes(), 20 + 400 * weights[3])
    assert ax.get_aspect() == 1


def test_the_plane_holds_a_query_longer_than_any_key():
    for query in ([0.5, 4.0], [-4.0, 0.5]):
        ax = plots.plane(
            query, [[1, 0], [0, 1]], words="ab", weights=[0.5, 0.5], name="q", lines=()
        )
        assert ax.viewLim.contains(*query)
        assert ax.viewLim.contains(0, 0)


def test_he_and_paul_are_labelled_on_opposite_sides():
    ax = plots.plane(QUERY[3], KEY, words=WORDS, weights=P[3], name="he asks")
    ax.figure.draw_without_rendering()
    label = {t.get_text(): t.get_window_extent() for t in ax.texts}
    dot = {word: ax.transData.transform(key) for word, key in zip(WORDS, KEY)}
    assert label["he"].x1 < dot["he"][0]
    assert label["Paul"].x0 > dot["Paul"][0]
    assert "told\nwon" in label


def test_the_plane_takes_a_level_query_and_refuses_an_empty_one():
    ax = plots.plane(QUERY[0], KEY, words=WORDS, weights=P[0], name="Paul asks")
    for score, line in zip((-2, 0, 2, 4), [line for line in ax.lines if line.is_dashed()]):
        np.testing.assert_allclose(line.get_ydata(), score)
    ax = plots.plane(QUERY[0], KEY, words=WORDS, weights=P[0], name="Paul asks", lines=())
    assert not any(line.is_dashed() for line in ax.lines)
    with pytest.raises(ValueError, match=r"query must not be \(0, 0\)"):
        plots.plane(QUERY[1], KEY, words=WORDS, weights=P[1], name="told asks")
    with pytest.raises(ValueError, match="weights must sum to 1"):
        plots.plane(QUERY[0], KEY, words=WORDS, weights=P[0] / 2, name="Paul asks")
    with pytest.raises(ValueError, match=r"keys must have shape \(5, 2\)"):
        plots.plane(QUERY[0], embed(WORDS), words=WORDS, weights=P[0], name="Paul asks")


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, qkvlib.plots; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'qkvlib\[plots\]'"):
        plots.heatmap(P, queries=WORDS, keys=WORDS)
