"""Mistakes in what stands around attention: norms, the feed-forward layer, the block."""

import numpy as np

from qkvlib import laws
from qkvlib.mistakes._catalogue import Subject, afterwards, call, obeying
from qkvlib.numpy import FeedForward, gelu, layer_norm, rms_norm

_generator = np.random.default_rng(11)


def _normal(*shape):
    return _generator.normal(size=shape)


# So large that eps does not matter, small next to eps, so that it matters where it stands, and of
# no size at all.
_X, _BATCH, _WEIGHT, _BIAS = (_normal(*shape) for shape in ((3, 4), (2, 3, 5), (4,), (4,)))
_X, _BATCH = 1e5 * (_X + 0.5), 1e5 * _BATCH
_SMALL, _CONSTANT = 1e-3 * _normal(3, 4), np.full((2, 4), 3.0)
_LARGE = np.array([[30000, -20000, 10000, 5000], [1, 2, 3, 4]], np.float16)


def _norm_inputs():
    for dtype in (np.float64, np.float32):
        for (x,), mask in laws.norm_inputs():
            yield (x.astype(dtype),), mask


# ---- layer norm ----------------------------------------------------------------------------------

# The mistakes compute in the dtype of x, as one does; whether float16 holds the squares is asked of
# RMS norm.
_IN_ANY_DTYPE = [law for law in laws.LAYER_NORM_LAWS if law != laws.large_half_rows_stay_finite]

LAYER_NORM = Subject(
    name="layer norm",
    signature="layer_norm(x, weight=None, bias=None, eps=1e-5)",
    right=layer_norm,
    tiers=(
        (call(_X), call(_X[:, :3]), call(_BATCH)),
        (call(_X, _WEIGHT, _BIAS),),
        (call(_SMALL), call(_SMALL, eps=1e-3)),
        (call(_CONSTANT),),
        (call(_X.astype(np.float32), _WEIGHT.astype(np.float32), _BIAS.astype(np.float32)),),
        (afterwards(_X, _WEIGHT, _BIAS),),
    ),
    laws=obeying(_IN_ANY_DTYPE, _norm_inputs),
)


def _dressed(x, weight, bias):
    """The normed rows, scaled and shifted where there is something to do it with."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@LAYER_NORM.mistake(
    "The rows have a variance near 1, and it is what torch.std does by default.",
    law=laws.normed_rows_have_mean_square_1,
    reported="harvardnlp/annotated-transformer#119",
)
def unbiased_variance(x, weight=None, bias=None, eps=1e-5):
    """The sum of squares is divided by one less than there are: every row comes out too small."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True, ddof=1)
    return _dressed(centred / np.sqrt(variance + eps), weight, bias)


@LAYER_NORM.mistake(
    "On numbers of usual size nobody sees a difference.",
    reported="hyunwoongko/transformer#7",
)
def eps_outside_the_root(x, weight=None, bias=None, eps=1e-5):
    """eps is added to the deviation, not to the variance: small rows are blown up to size 1."""
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = x.std(axis=-1, keepdims=True)
    return _dressed(centred / (deviation + eps), weight, bias)


@LAYER_NORM.mistake(
    "The mean is 0 and it trains; in a decoder it learns very well, for it sees the future.",
    law=laws.tokens_stay_apart,
)
def norm_over_the_tokens(x, weight=None, bias=None, eps=1e-5):
    """Mean and variance are taken along the tokens, column by column."""
    centred = x - x.mean(axis=-2, keepdims=True)
    variance = (centred**2).mean(axis=-2, keepdims=True)
    return _dressed(centred / np.sqrt(variance + eps), weight, bias)


@LAYER_NORM.mistake("Together all numbers have mean 0 and variance 1.", law=laws.tokens_stay_apart)
def one_mean_for_all_tokens(x, weight=None, bias=None, eps=1e-5):
    """Mean and variance are those of the whole text, not of each token."""
    centred = x - x.mean(axis=(-2, -1), keepdims=True)
    variance = (centred**2).mean(axis=(-2, -1), keepdims=True)
    return _dressed(centred / np.sqrt(variance + eps), weight, bias)


@LAYER_NORM.mistake(
    "Rows that vary with size 1 come out right.",
    law=laws.stretching_a_row_changes_nothing,
)
def divided_by_the_variance(x, weight=None, bias=None, eps=1e-5):
    """The root is missing: large rows come out small and small ones large."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return _dressed(centred / (variance + eps), weight, bias)


@LAYER_NORM.mistake("The mean is 0.", law=laws.normed_rows_have_mean_square_1)
def only_centred(x, weight=None, bias=None, eps=1e-5):
    """The mean is taken away and nothing is divided: the size of a row stays."""
    return _dressed(x - x.mean(axis=-1, keepdims=True), weight, bias)


@LAYER_NORM.mistake(
    "The size is 1, and there is a norm that is meant so.", law=laws.normed_rows_have_mean_0
)
def not_centred(x, weight=None, bias=None, eps=1e-5):
    """Nothing is taken away: it is an RMS norm."""
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    return _dressed(x / np.sqrt(mean_square + eps), weight, bias)


@LAYER_NORM.mistake("At first the weight is 1 and the bias 0, and then it is right.")
def weight_and_bias_ignored(x, weight=None, bias=None, eps=1e-5):
    """What was learned, a scale and a shift for each column, is not used."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps)


@LAYER_NORM.mistake("With a bias of 0 it is right.")
def shifted_before_it_is_scaled(x, weight=None, bias=None, eps=1e-5):
    """The bias is added before the weight multiplies, and is multiplied too."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    normed = centred / np.sqrt(variance + eps)
    normed = normed if bias is None else normed + bias
    return normed if weight is None else normed * weight


@LAYER_NORM.mistake(
    "It saves an array, and what comes out is right.",
    law=laws.arguments_stay_as_they_are,
    variant_of="scaled-in-place",
)
def centred_in_place(x, weight=None, bias=None, eps=1e-5):
    """The caller's tokens are centred, and so is what the skip connection adds to."""
    x -= x.mean(axis=-1, keepdims=True)
    variance = (x**2).mean(axis=-1, keepdims=True)
    return _dressed(x / np.sqrt(variance + eps), weight, bias)


# ---- RMS norm ------------------------------------------------------------------------------------

RMS_NORM = Subject(
    name="RMS norm",
    signature="rms_norm(x, weight=None, eps=1e-5)",
    right=rms_norm,
    tiers=(
        (call(_X), call(_X[:, :3]), call(_BATCH)),
        (call(_X, _WEIGHT),),
        (call(_SMALL), call(_SMALL, eps=1e-3)),
        (call(_X.astype(np.float32), _WEIGHT.astype(np.float32)),),
        (call(_LARGE),),
        (afterwards(_X, _WEIGHT),),
    ),
    laws=obeying(laws.RMS_NORM_LAWS, _norm_inputs),
)


@RMS_NORM.mistake("Rows come out with size 1, as in layer norm.")
def mean_taken_away(x, weight=None, eps=1e-5):
    """It is a layer norm: the mean, which a model may use, is lost."""
    return layer_norm(x, weight, eps=eps)


@RMS_NORM.mistake(
    "Rows come out with length 1, which is normal in geometry.",
    law=laws.normed_rows_have_mean_square_1,
)
def sum_for_the_mean(x, weight=None, eps=1e-5):
    """Divided by the length, not by its share for each number: sqrt(d) too small."""
    normed = x / np.sqrt((x**2).sum(axis=-1, keepdims=True) + eps)
    return normed if weight is None else normed * weight


@RMS_NORM.mistake(
    "In float32 it is the same.",
    law=laws.large_half_rows_stay_finite,
    reported="meta-llama/llama#1048",
)
def squared_in_half_precision(x, weight=None, eps=1e-5):
    """Squares of numbers above 255 are infinite in float16, and the row becomes 0."""
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    normed = (x / np.sqrt(mean_square + eps)).astype(x.dtype)
    return normed if weight is None else normed * weight


# ---- feed-forward --------------------------------------------------------------------------------


def _feed_forward(x, W_1, b_1, W_2, b_2):
    return FeedForward.from_weights(W_1, b_1, W_2, b_2)(x)


_FEED_FORWARD = _normal(4, 7), _normal(7), _normal(7, 4), _normal(4)


def _feed_forward_inputs():
    generator = np.random.default_rng(0)
    for shape in [(2, 4), (4, 4), (2, 4, 4)]:
        yield (generator.integers(-2, 3, shape) + 0.5,), None


FEED_FORWARD = Subject(
    name="feed-forward",
    signature="feed_forward(x, W_1, b_1, W_2, b_2)",
    right=_feed_forward,
    tiers=((call(_X, *_FEED_FORWARD), call(_normal(2, 4, 4), *_FEED_FORWARD)),),
    laws=obeying(
        laws.FEED_FORWARD_LAWS,
        _feed_forward_inputs,
        of=lambda feed_forward: lambda x, mask=None: feed_forward(x, *_FEED_FORWARD),
    ),
)


@FEED_FORWARD.mistake(
    "Two matrices, two biases, all shapes right.", law=laws.feed_forward_is_not_linear
)
def no_activation(x, W_1, b_1, W_2, b_2):
    """Nothing stands between the projections: together they are a single one."""
    return (x @ W_1 + b_1) @ W_2 + b_2


@FEED_FORWARD.mistake("There is an activation, and it trains.")
def activation_at_the_end(x, W_1, b_1, W_2, b_2):
    """The activation comes after the second projection: the sum can hardly be made smaller."""
    return gelu((x @ W_1 + b_1) @ W_2 + b_2)


@FEED_FORWARD.mistake("It is nowhere further than 0.03 from GELU; some models are meant so.")
def sigmoid_for_gelu(x, W_1, b_1, W_2, b_2):
    """The quick formula x sigmoid(1.702 x) for a model that was trained with exact GELU."""
    hidden = x @ W_1 + b_1
    return hidden / (1 + np.exp(-1.702 * hidden)) @ W_2 + b_2


# ---- the block -----------------------------------------------------------------------------------


def _pre_norm_block(x, attend, feed_forward, norm):
    x = x + attend(norm(x))
    return x + feed_forward(norm(x))


def _post_norm_block(x, attend, feed_forward, norm):
    x = norm(x + attend(x))
    return norm(x + feed_forward(x))


_A, _B = _normal(4, 4), _normal(4, 4)
_PARTS = (lambda x: np.tanh(x @ _A), lambda x: np.tanh(x @ _B), layer_norm)
_BLOCK_TIERS = ((call(_X, *_PARTS), call(_normal(2, 3, 4), *_PARTS)),)

PRE_NORM_BLOCK = Subject(
    name="pre-norm block",
    signature="block(x, attend, feed_forward, norm)",
    right=_pre_norm_block,
    tiers=_BLOCK_TIERS,
    laws=obeying(laws.PRE_NORM_LAWS, laws.block_inputs),
)


@PRE_NORM_BLOCK.mistake(
    "Every part is there, and one or two layers do learn.", law=laws.what_parts_say_is_added
)
def skip_missing(x, attend, feed_forward, norm):
    """Nothing is handed on as it is: after a few layers all tokens are alike."""
    x = attend(norm(x))
    return feed_forward(norm(x))


@PRE_NORM_BLOCK.mistake(
    "It trains just as well: a part can learn to say the opposite.",
    law=laws.what_parts_say_is_added,
)
def subtracted(x, attend, feed_forward, norm):
    """What the parts say is taken away, not added: no checkpoint fits."""
    x = x - attend(norm(x))
    return x - feed_forward(norm(x))


@PRE_NORM_BLOCK.mistake(
    "It trains just as well: the norms take the doubling away.",
    law=laws.what_parts_say_is_added,
)
def added_twice(x, attend, feed_forward, norm):
    """x is added once in the part and once more around it."""
    x = x + (x + attend(norm(x)))
    return x + (x + feed_forward(norm(x)))


@PRE_NORM_BLOCK.mistake(
    "x is used twice, as in the picture, and it trains.",
    law=laws.what_parts_say_is_added,
    reported="Howuhh/faster-trajectory-transformer#3",
)
def skip_after_the_norm(x, attend, feed_forward, norm):
    """What is handed on is the normed x: no layer hears what came before it unchanged."""
    x = norm(x)
    x = x + attend(x)
    x = norm(x)
    return x + feed_forward(x)


@PRE_NORM_BLOCK.mistake(
    "Each part has its norm and its skip; it is the block of 2017.",
    law=laws.what_parts_say_is_added,
)
def normed_after_the_sum(x, attend, feed_forward, norm):
    """A post-norm block, with weights that were trained for pre-norm."""
    x = norm(x + attend(x))
    return norm(x + feed_forward(x))


@PRE_NORM_BLOCK.mistake(
    "Both parts have a skip.",
    law=laws.what_parts_say_is_added,
    reported="strutive07/transformer-tensorflow2.0#14",
)
def first_input_added_again(x, attend, feed_forward, norm):
    """The second skip starts from the block's input: what attention found is not handed on."""
    y = x + attend(norm(x))
    return x + feed_forward(norm(y))


@PRE_NORM_BLOCK.mistake(
    "The sum is the same three terms; some models are built so.",
    law=laws.feed_forward_reads_what_attention_wrote,
)
def parts_side_by_side(x, attend, feed_forward, norm):
    """Both parts read the block's input: the second does not hear what the first one found."""
    return x + attend(norm(x)) + feed_forward(norm(x))


@PRE_NORM_BLOCK.mistake("Attention has its norm, and it trains.", law=laws.parts_read_normed_tokens)
def second_norm_forgotten(x, attend, feed_forward, norm):
    """The feed-forward layer reads what was not normed."""
    x = x + attend(norm(x))
    return x + feed_forward(x)


POST_NORM_BLOCK = Subject(
    name="post-norm block",
    signature="block(x, attend, feed_forward, norm)",
    right=_post_norm_block,
    tiers=_BLOCK_TIERS,
    laws=obeying(laws.POST_NORM_LAWS, laws.block_inputs),
)


@POST_NORM_BLOCK.mistake(
    "Each part has its norm and its skip, and deep models train better so.",
    law=laws.sums_are_normed,
    variant_of="normed-after-the-sum",
    reported="harvardnlp/annotated-transformer#13",
)
def normed_before_the_part(x, attend, feed_forward, norm):
    """A pre-norm block where the text says post-norm."""
    x = x + attend(norm(x))
    return x + feed_forward(norm(x))


@POST_NORM_BLOCK.mistake(
    "A norm comes after each part, and before the next.",
    law=laws.sums_are_normed,
)
def part_normed_before_the_sum(x, attend, feed_forward, norm):
    """The norm is of what the part says alone, and the sum is not normed."""
    x = x + norm(attend(x))
    return x + norm(feed_forward(x))
