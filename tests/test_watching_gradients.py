"""The deep models of section 7.3 are what their names say, and the seed decides everything."""

import numpy as np
import pytest
import torch

from qkvlib.book.experiments.watching_gradients import DEEP, deep_reader, query_gradients
from qkvlib.diagnostics import diagnose, gradient_norms, token_spread_by_depth


@pytest.mark.parametrize("kind", DEEP)
def test_the_seed_decides_everything(kind):
    def norms(seed):
        return gradient_norms(*deep_reader(kind, seed))

    state = torch.get_rng_state()
    np.testing.assert_array_equal(norms(1), norms(np.random.default_rng(1)))
    assert not np.array_equal(norms(1), norms(2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", DEEP)
def test_what_a_block_hands_on(kind):
    """With parts that give nothing, a skip hands on what came in, and no skip hands on nothing."""
    encoder, tokens, _ = deep_reader(kind)
    with torch.no_grad():
        for block in encoder.blocks:
            block.attention.output.weight.zero_()
            block.feed_forward.outer.weight.zero_()
        states = encoder.trace(tokens).hidden_states
    has_skip = torch.equal(states[0], states[-1])
    assert has_skip == (kind in ("healthy", "no queries, no keys"))
    assert has_skip or not states[-1].any()


@pytest.mark.parametrize("kind", DEEP)
def test_which_parts_see_a_norm(kind):
    """Behind a norm the size of what is read makes no difference."""
    block = deep_reader(kind).encoder.blocks[0]
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 32)))
    with torch.no_grad():
        same = torch.allclose(block.attention_weights(x), block.attention_weights(100 * x), 1e-3)
    assert same == (kind != "no skip, no norm")


def test_weights_have_the_variance_of_a_fresh_linear_layer():
    encoder, *_ = deep_reader()
    block = encoder.blocks[3]
    for linear in (block.attention.query, block.attention.output, block.feed_forward.inner):
        theirs = torch.nn.Linear(linear.in_features, linear.out_features)
        assert linear.weight.std().item() == pytest.approx(theirs.weight.std().item(), rel=0.1)


def test_query_gradients_are_those_of_a_backward_pass():
    model = deep_reader()
    model.loss(model.encoder(model.tokens)).backward()
    gradients = [block.attention.query.weight.grad.norm() for block in model.encoder.blocks]
    np.testing.assert_allclose(query_gradients(model), gradients, rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("healthy", "healthy"),
        ("no skip, no norm", "collapsed_tokens"),
        ("no skip", "collapsed_tokens"),
        ("no queries, no keys", "zero_saddle"),
    ],
)
def test_the_doctor_finds_each(kind, cause):
    model = deep_reader(kind)
    assert diagnose(model.encoder, model.tokens, loss=model.loss).cause == cause


def test_another_kind_is_refused():
    with pytest.raises(ValueError, match="kind must be 'healthy' or"):
        deep_reader("ill")


def test_the_collapse_is_no_matter_of_the_loss():
    spread = token_spread_by_depth(*deep_reader("no skip")[:2])
    assert spread[0] > 0.9
    assert spread[5] < 1e-8
