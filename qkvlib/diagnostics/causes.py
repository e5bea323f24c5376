"""The codes that `diagnose` answers with, and what they mean.

A code is a cause, not a complaint: every way to divide scores once too often is `over_divided`;
tokens that collapse in depth and tokens that came in alike are both `collapsed_tokens`; NaN by
infinite scores is `score_overflow`, whoever made them infinite; padding and future that are read
because nobody passed the mask on are both `ignored_mask`; heads made by reshaping alone have one
code, whether they were split so, merged so, or both.
"""

from typing import NamedTuple

__all__ = ["CAUSES", "Cause"]


class Cause(NamedTuple):
    """What a code means, the reading that gives it away, and what to do."""

    meaning: str
    sign: str
    advice: str


CAUSES = {
    "healthy": Cause(
        "nothing found",
        "no reading is out of bounds",
        "look elsewhere: data, learning rate, or parts that only a reference can check",
    ),
    # ---- the map is grey
    "tiny_init": Cause(
        "queries and keys are so small that all scores are nearly 0, and all weights the same",
        "lengths of q and k far below sqrt(d_k)",
        "draw weights as Xavier does, look at the size of x; before training pass loss= to be sure",
    ),
    "tiny_but_learning": Cause(
        "the same start, but gradients reach queries and keys: a slow start, not an illness",
        "as tiny_init, with a gradient that is not 0",
        "wait: train some hundred steps and diagnose with trained=True",
    ),
    "zero_saddle": Cause(
        "W_Q and W_K are both 0: each one's gradient contains the other, so both stay 0",
        "lengths of q and k exactly 0, gradients exactly 0",
        "give one of the two any start other than 0",
    ),
    "zero_projection": Cause(
        "queries or keys are 0, the others are not: uniform until the first steps are done",
        "length of q or of k exactly 0",
        "train some steps if it was meant; else draw that matrix like the other one",
    ),
    "over_divided": Cause(
        "the scores are divided more than once: 1 / d_k, d_k ** -1.5, or a temperature above 1",
        "q and k of normal length, scores rise far less than q k / sqrt(d_k)",
        "divide once, by sqrt(d_k)",
    ),
    "collapsed_tokens": Cause(
        "the tokens have become the same before they are compared",
        "token spread and key spread near 0, length of k normal",
        "add the residual connection x + attend(x); look at x if it is the first layer",
    ),
    "key_bias": Cause(
        "the tokens differ but the keys do not: a bias drowns what the projection says",
        "key spread near 0 while token spread is not",
        "take the key bias out (softmax does not see it) and draw W_K anew",
    ),
    "softmax_twice": Cause(
        "a softmax of weights: numbers between 0 and 1 differ too little to choose",
        "weights are softmax(softmax(scores))",
        "take one softmax out",
    ),
    "finite_mask": Cause(
        "a large negative number instead of -inf: a row with nothing to read reads the forbidden",
        "weight on forbidden keys, only in rows that may attend to nothing",
        "use a Boolean mask and give such rows weights of 0",
    ),
    "score_underflow": Cause(
        "products of small queries and keys round to 0 in this dtype",
        "scores exactly 0, q and k not 0",
        "compute scores in float32; and draw weights with variance 1 / fan_in",
    ),
    # ---- the map is one-hot
    "missing_scale": Cause(
        "the scores are not divided by sqrt(d_k)",
        "q and k of normal length, scores rise far more than q k / sqrt(d_k)",
        "divide by sqrt(d_k), or draw W_Q smaller by that factor",
    ),
    "huge_init": Cause(
        "queries and keys start so large that softmax takes one key for all",
        "lengths of q and k far above sqrt(d_k)",
        "draw weights with variance 1 / fan_in, such as Xavier; and look at the size of x",
    ),
    # ---- it is suspiciously good
    "inverted_mask": Cause(
        "the mask is used the other way round: True forbids",
        "all weight on forbidden keys",
        "pass ~mask, or mask where it is False",
    ),
    "mask_after_softmax": Cause(
        "the mask is applied to weights, and the forbidden keys stay in the denominator",
        "rows sum to less than 1",
        "set forbidden scores to -inf before softmax",
    ),
    "norm_over_tokens": Cause(
        "something outside the weights mixes tokens, such as a norm over the token axis",
        "leak, while no weight is on a forbidden key",
        "normalise each token by itself: axis=-1",
    ),
    "multiplied_mask": Cause(
        "forbidden scores are set to a number such as 0: exp(0) is 1, not 0",
        "some weight on forbidden keys, and it is not the weight without a mask",
        "set forbidden scores to -inf before softmax",
    ),
    "view_without_transpose": Cause(
        "heads are made by reshaping alone: each is a stretch of the text, not of the columns",
        "influence: tokens do not reach outputs that have a weight for them",
        "reshape to (n, h, d_k), then swap the first two of these axes",
    ),
    # ---- numbers that cannot be
    "lost_tokens": Cause(
        "some tokens are lost before they are compared: whatever they hold, nothing of it arrives",
        "another token in that place changes no query, key or value",
        "compute norms in float32: a square that overflows below a division gives 0, not NaN",
    ),
    "empty_row_nan": Cause(
        "softmax of a row of -inf: 0 / 0",
        "NaN in the weights, none in the scores",
        "give a query that may attend to nothing weights of 0",
    ),
    "score_overflow": Cause(
        "the scores leave the range of their dtype",
        "NaN or infinity in the scores, before softmax",
        "scale the query before the product, compute scores in float32, look at the size of x",
    ),
    "nan_outside_scores": Cause(
        "numbers go wrong before the scores or after the weights, not in between",
        "NaN or infinity in q, k or v, or in the output of weights without any",
        "look for NaN in the weight matrices, and for values that leave the range of their dtype",
    ),
    "dropout_left_on": Cause(
        "dropout is at work in a model that is not being trained",
        "outputs of two calls differ, though all modules are in evaluation mode",
        "F.dropout(x, p, training=self.training), or nn.Dropout",
    ),
    "dropout_in_weights": Cause(
        "the weights that are returned have been through dropout",
        "weights differ from call to call, some are above 1",
        "return the weights before dropout",
    ),
    "ignored_mask": Cause(
        "the mask changes nothing: padding or the future is read like the rest",
        "weights, or outputs, with and without the mask are the same",
        "pass the mask on to the scores",
    ),
    "mask_on_wrong_axis": Cause(
        "the mask lies along the wrong axis: equal sizes hide a missing or swapped one",
        "weights are 0 where another text's or the transposed mask says so",
        "give the mask all axes of the scores, as in mask[:, None, None, :]",
    ),
    "wrong_softmax_axis": Cause(
        "softmax runs over queries or heads instead of keys",
        "rows sum to more and to less than 1",
        "softmax over the last axis",
    ),
}
"""Every code that `diagnose` may answer with. Those of one group are easily confused."""
