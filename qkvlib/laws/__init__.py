"""What every right implementation of attention obeys, whoever wrote it.

A law is a function of the implementation under test and of inputs for it. It returns None when
it holds, else a `CounterExample` that says where it fails and how:

>>> import numpy as np
>>> from qkvlib.numpy import scaled_dot_product_attention
>>> query, key, value = np.array([[1.0]]), np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]])
>>> rows_sum_to_one(scaled_dot_product_attention, query, key, value) is None
True
>>> def forgot_to_normalise(query, key, value, *, mask=None):
...     return np.exp(query @ key.T) @ value
>>> print(rows_sum_to_one(forgot_to_normalise, query, np.zeros((2, 1)), value))
rows_sum_to_one: weights of query (0,), summed, must be 1.0, got 2.0; with query=[[1.]], \
key=[[0.], [0.]], value=[[1.], [3.]], mask=None

There are laws of several kinds of function, on plain NumPy arrays, with masks that say True for
"may attend":

- `attend(query, key, value, *, mask=None)`, shapes and mask as in
  `qkvlib.numpy.scaled_dot_product_attention`: `ATTENTION_LAWS`. Of a function that stops at the
  weights make one by `lambda query, key, value, *, mask=None: weights(...) @ value`; of several
  heads that are split, attend and are merged again, one whose widths are `num_heads * d`.
- `layer(x, *, mask=None)`, from tokens to tokens, with masks of two axes: `LAYER_LAWS`.
- `mha(x, W_Q, W_K, W_V, W_O, *, num_heads)`, the same with its weights: `HEAD_LAWS`.
- `part(x)`, what stands around attention: `LAYER_NORM_LAWS`, `RMS_NORM_LAWS`,
  `FEED_FORWARD_LAWS`, `PROJECTION_LAWS`.
- `block(x, attend, feed_forward, norm)`: `PRE_NORM_LAWS`, `POST_NORM_LAWS`.
- `mask(n_query, n_key)`, who may attend to whom: `CAUSAL_MASK_LAWS`; with `window=`
  `WINDOW_MASK_LAWS`; `mask(lengths, n_key)`: `PADDING_MASK_LAWS`.
- `rotate(x, positions)`: `ROTATION_LAWS`; `table(n, d_model)`: `POSITION_TABLE_LAWS`;
  `bias(num_heads, n_query, n_key)`: `DISTANCE_BIAS_LAWS`.
- `read(query, key, value, sizes)`, attention to what came before, piece by piece: `CACHE_LAWS`;
  `merge(state, state)` of an online softmax: `MERGE_LAWS`.
- `draw(fan_in, fan_out, *, generator)`: `INITIALISATION_LAWS`; `dropout(x, rate, *, training,
  generator)`: `DROPOUT_LAWS`; `attend(query, key, value, *, drop)`:
  `DROPPED_ATTENTION_LAWS`; `token_probabilities(logits, *, temperature, top_k, top_p)`:
  `TOKEN_LAWS`.

A function that answers with something else than an array of the right shape breaks every law
that looks at the output. `smallest_counterexample` tries a law on inputs from small to large.

Laws do not see everything: a wrong `1 / sqrt(d_k)` obeys those of attention, the other pairing
those of rotation. For that compare with a reference; `qkvlib.mistakes` says which mistakes break
which laws, and which none.
"""

from qkvlib.laws._law import (
    CounterExample,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
    smallest_counterexample,
)
from qkvlib.laws.attention import (
    attention_inputs,
    empty_rows_are_zero,
    every_value_reaches_every_output,
    forbidden_keys_have_no_influence,
    gradient_inputs,
    gradients_of_scores_sum_to_zero,
    half_scores_that_fit_stay_finite,
    large_scores_stay_finite,
    permuting_keys_with_values_changes_nothing,
    permuting_queries_permutes_outputs,
    rows_sum_to_one,
    shifting_scores_changes_nothing,
    the_only_key_gives_its_value,
    unreachable_keys_may_hold_anything,
)
from qkvlib.laws.chance import (
    chances_sum_to_one,
    dropout_drops_its_share,
    dropout_inputs,
    dropout_keeps_the_mean,
    dropout_rests_after_training,
    dropped_inputs,
    fan_inputs,
    logit_inputs,
    the_generator_decides,
    the_kept_tokens_reach_top_p,
    the_likeliest_token_stays_likeliest,
    top_k_keeps_k_tokens,
    warmer_is_flatter,
    weights_have_their_variance,
    what_is_dropped_is_not_read,
    what_is_kept_makes_up_for_it,
)
from qkvlib.laws.layers import (
    an_output_matrix_of_zeros_silences_all,
    another_basis_changes_nothing,
    block_inputs,
    contributions_sum_to_the_output,
    equal_values_come_back,
    every_head_reads_every_column,
    every_source_token_is_read,
    every_token_influences_every_output,
    feed_forward_is_not_linear,
    feed_forward_reads_what_attention_wrote,
    forbidden_tokens_have_no_influence,
    head_inputs,
    heads_in_another_order_change_nothing,
    layer_inputs,
    parts_read_normed_tokens,
    permuting_tokens_permutes_outputs,
    projections_are_linear,
    repeated_heads_are_neighbours,
    source_inputs,
    sums_are_normed,
    tokens_stay_apart,
    what_parts_say_is_added,
)
from qkvlib.laws.masks import (
    a_query_alone_reads_as_the_last_of_many,
    a_window_of_one_reads_itself,
    all_tokens_are_open,
    both_masks_hold,
    every_query_reads_the_past_and_itself,
    mask_inputs,
    masks_are_boolean,
    no_query_reads_the_future,
    padding_inputs,
    padding_is_closed,
    padding_masks_are_boolean,
    windows_open_to_both_sides,
)
from qkvlib.laws.norms import (
    large_half_rows_stay_finite,
    norm_inputs,
    normed_rows_have_mean_0,
    normed_rows_have_mean_square_1,
    stretching_a_row_changes_nothing,
)
from qkvlib.laws.positions import (
    a_query_alone_is_biased_as_the_last_of_many,
    bias_inputs,
    heads_have_slopes_of_their_own,
    nearer_keys_are_favoured,
    position_0_changes_nothing,
    positions_have_one_length,
    products_know_the_distance_alone,
    rotated_scores_know_the_distance,
    rotated_scores_know_the_distance_alone,
    rotating_keeps_lengths,
    rotation_inputs,
    table_inputs,
)
from qkvlib.laws.steps import (
    an_empty_part_adds_nothing,
    merged_parts_are_the_whole,
    no_output_waits_for_later_tokens,
    part_inputs,
    pieces_read_as_the_whole,
    state,
    step_inputs,
    the_order_of_parts_does_not_matter,
)

ATTENTION_LAWS = (
    rows_sum_to_one,
    the_only_key_gives_its_value,
    empty_rows_are_zero,
    forbidden_keys_have_no_influence,
    unreachable_keys_may_hold_anything,
    permuting_queries_permutes_outputs,
    permuting_keys_with_values_changes_nothing,
    shifting_scores_changes_nothing,
    every_value_reaches_every_output,
    large_scores_stay_finite,
    half_scores_that_fit_stay_finite,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
)
"""The laws of `attend(query, key, value, *, mask=None)`."""

LAYER_LAWS = (
    permuting_tokens_permutes_outputs,
    forbidden_tokens_have_no_influence,
    every_token_influences_every_output,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
)
"""The laws of `layer(x, *, mask=None)` without positions."""

CAUSAL_MASK_LAWS = (
    masks_are_boolean,
    no_query_reads_the_future,
    every_query_reads_the_past_and_itself,
    a_query_alone_reads_as_the_last_of_many,
)
"""The laws of `mask(n_query, n_key)`, a causal mask."""

HEAD_LAWS = (
    equal_values_come_back,
    heads_in_another_order_change_nothing,
    another_basis_changes_nothing,
    every_head_reads_every_column,
    an_output_matrix_of_zeros_silences_all,
)
"""The laws of `mha(x, W_Q, W_K, W_V, W_O, *, num_heads)`."""

LAYER_NORM_LAWS = (
    normed_rows_have_mean_0,
    normed_rows_have_mean_square_1,
    stretching_a_row_changes_nothing,
    tokens_stay_apart,
    large_half_rows_stay_finite,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
)
"""The laws of a layer norm `norm(x)`."""

RMS_NORM_LAWS = (
    normed_rows_have_mean_square_1,
    stretching_a_row_changes_nothing,
    tokens_stay_apart,
    large_half_rows_stay_finite,
    arguments_stay_as_they_are,
    output_keeps_the_dtype,
)
"""The laws of an RMS norm `norm(x)`."""

FEED_FORWARD_LAWS = (
    tokens_stay_apart,
    permuting_tokens_permutes_outputs,
    feed_forward_is_not_linear,
)
"""The laws of a feed-forward layer `feed_forward(x)`."""

PROJECTION_LAWS = (
    tokens_stay_apart,
    permuting_tokens_permutes_outputs,
    projections_are_linear,
)
"""The laws of a projection `project(x)`."""

PRE_NORM_LAWS = (
    what_parts_say_is_added,
    parts_read_normed_tokens,
    feed_forward_reads_what_attention_wrote,
)
"""The laws of `block(x, attend, feed_forward, norm)` that norms what its parts read."""

POST_NORM_LAWS = (
    sums_are_normed,
    feed_forward_reads_what_attention_wrote,
)
"""The laws of `block(x, attend, feed_forward, norm)` that norms its sums."""

WINDOW_MASK_LAWS = (
    a_window_of_one_reads_itself,
    windows_open_to_both_sides,
)
"""The laws of `mask(n_query, n_key, *, window)`, open to both sides."""

PADDING_MASK_LAWS = (
    padding_masks_are_boolean,
    padding_is_closed,
    all_tokens_are_open,
)
"""The laws of `mask(lengths, n_key)`."""

ROTATION_LAWS = (
    position_0_changes_nothing,
    rotating_keeps_lengths,
    rotated_scores_know_the_distance_alone,
    rotated_scores_know_the_distance,
)
"""The laws of `rotate(x, positions)`."""

POSITION_TABLE_LAWS = (
    positions_have_one_length,
    products_know_the_distance_alone,
)
"""The laws of `table(n, d_model)` of sines and cosines."""

DISTANCE_BIAS_LAWS = (
    nearer_keys_are_favoured,
    a_query_alone_is_biased_as_the_last_of_many,
    heads_have_slopes_of_their_own,
)
"""The laws of `bias(num_heads, n_query, n_key)`, linear in the distance."""

CACHE_LAWS = (
    pieces_read_as_the_whole,
    no_output_waits_for_later_tokens,
)
"""The laws of causal attention `read(query, key, value, sizes)`, piece by piece."""

MERGE_LAWS = (
    merged_parts_are_the_whole,
    the_order_of_parts_does_not_matter,
    an_empty_part_adds_nothing,
)
"""The laws of `merge((m, l, acc), (m, l, acc))`."""

INITIALISATION_LAWS = (
    weights_have_their_variance,
    the_generator_decides,
)
"""The laws of Xavier weights `draw(fan_in, fan_out, *, generator)`."""

DROPOUT_LAWS = (
    dropout_keeps_the_mean,
    dropout_drops_its_share,
    dropout_rests_after_training,
)
"""The laws of `dropout(x, rate, *, training, generator)`."""

DROPPED_ATTENTION_LAWS = (
    what_is_dropped_is_not_read,
    what_is_kept_makes_up_for_it,
)
"""The laws of `attend(query, key, value, *, drop)`, drop a dropout of weights."""

TOKEN_LAWS = (
    chances_sum_to_one,
    the_likeliest_token_stays_likeliest,
    top_k_keeps_k_tokens,
    the_kept_tokens_reach_top_p,
    warmer_is_flatter,
)
"""The laws of `token_probabilities(logits, *, temperature=1.0, top_k=None, top_p=None)`."""

__all__ = [
    "CounterExample",
    "smallest_counterexample",
    "arguments_stay_as_they_are",
    "output_keeps_the_dtype",
    "attention_inputs",
    "rows_sum_to_one",
    "the_only_key_gives_its_value",
    "empty_rows_are_zero",
    "forbidden_keys_have_no_influence",
    "unreachable_keys_may_hold_anything",
    "permuting_queries_permutes_outputs",
    "permuting_keys_with_values_changes_nothing",
    "shifting_scores_changes_nothing",
    "every_value_reaches_every_output",
    "large_scores_stay_finite",
    "half_scores_that_fit_stay_finite",
    "layer_inputs",
    "permuting_tokens_permutes_outputs",
    "forbidden_tokens_have_no_influence",
    "every_token_influences_every_output",
    "tokens_stay_apart",
    "projections_are_linear",
    "feed_forward_is_not_linear",
    "head_inputs",
    "equal_values_come_back",
    "heads_in_another_order_change_nothing",
    "another_basis_changes_nothing",
    "every_head_reads_every_column",
    "an_output_matrix_of_zeros_silences_all",
    "contributions_sum_to_the_output",
    "repeated_heads_are_neighbours",
    "source_inputs",
    "every_source_token_is_read",
    "block_inputs",
    "what_parts_say_is_added",
    "parts_read_normed_tokens",
    "feed_forward_reads_what_attention_wrote",
    "sums_are_normed",
    "norm_inputs",
    "normed_rows_have_mean_0",
    "normed_rows_have_mean_square_1",
    "stretching_a_row_changes_nothing",
    "large_half_rows_stay_finite",
    "mask_inputs",
    "masks_are_boolean",
    "no_query_reads_the_future",
    "every_query_reads_the_past_and_itself",
    "a_query_alone_reads_as_the_last_of_many",
    "a_window_of_one_reads_itself",
    "windows_open_to_both_sides",
    "padding_inputs",
    "padding_masks_are_boolean",
    "padding_is_closed",
    "all_tokens_are_open",
    "both_masks_hold",
    "rotation_inputs",
    "position_0_changes_nothing",
    "rotating_keeps_lengths",
    "rotated_scores_know_the_distance_alone",
    "rotated_scores_know_the_distance",
    "table_inputs",
    "positions_have_one_length",
    "products_know_the_distance_alone",
    "bias_inputs",
    "nearer_keys_are_favoured",
    "a_query_alone_is_biased_as_the_last_of_many",
    "heads_have_slopes_of_their_own",
    "step_inputs",
    "pieces_read_as_the_whole",
    "no_output_waits_for_later_tokens",
    "part_inputs",
    "state",
    "merged_parts_are_the_whole",
    "the_order_of_parts_does_not_matter",
    "an_empty_part_adds_nothing",
    "fan_inputs",
    "weights_have_their_variance",
    "the_generator_decides",
    "dropout_inputs",
    "dropout_keeps_the_mean",
    "dropout_drops_its_share",
    "dropout_rests_after_training",
    "dropped_inputs",
    "what_is_dropped_is_not_read",
    "what_is_kept_makes_up_for_it",
    "logit_inputs",
    "chances_sum_to_one",
    "the_likeliest_token_stays_likeliest",
    "top_k_keeps_k_tokens",
    "the_kept_tokens_reach_top_p",
    "warmer_is_flatter",
    "gradient_inputs",
    "gradients_of_scores_sum_to_zero",
    "ATTENTION_LAWS",
    "LAYER_LAWS",
    "CAUSAL_MASK_LAWS",
    "HEAD_LAWS",
    "LAYER_NORM_LAWS",
    "RMS_NORM_LAWS",
    "FEED_FORWARD_LAWS",
    "PROJECTION_LAWS",
    "PRE_NORM_LAWS",
    "POST_NORM_LAWS",
    "WINDOW_MASK_LAWS",
    "PADDING_MASK_LAWS",
    "ROTATION_LAWS",
    "POSITION_TABLE_LAWS",
    "DISTANCE_BIAS_LAWS",
    "CACHE_LAWS",
    "MERGE_LAWS",
    "INITIALISATION_LAWS",
    "DROPOUT_LAWS",
    "DROPPED_ATTENTION_LAWS",
    "TOKEN_LAWS",
]
