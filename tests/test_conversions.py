"""A layer from one twin to the other, and from and to torch's own."""

import math

import numpy as np
import pytest
from twins import ATTENTION, assert_near, back, dtype_of, weights

import qkvlib.numpy
from qkvlib.patterns import causal

torch = pytest.importorskip("torch")
lib = pytest.importorskip("qkvlib.torch")
MultiHeadAttention = lib.MultiHeadAttention
NAMES = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")

# d_model 12, d_source 10, six heads of d_k 5 and d_v 2 that share two heads of keys, d_out 7
GROUPED = {"W_Q": (12, 30), "W_K": (10, 10), "W_V": (10, 4), "W_O": (12, 7)}
GROUPED |= {"b_Q": (30,), "b_K": (10,), "b_V": (4,), "b_O": (7,)}
SQUARE = {f"W_{n}": (12, 12) for n in "QKVO"} | {f"b_{n}": (12,) for n in "QKVO"}


def drawn(shapes=SQUARE, dtype="float64"):
    """The same random weights, for each twin as its own arrays."""
    given = weights(np.random.default_rng(5), shapes)
    in_numpy = {name: x.astype(dtype) for name, x in given.items()}
    return in_numpy, {name: torch.from_numpy(x) for name, x in in_numpy.items()}


def plain(**options):
    return MultiHeadAttention.from_weights(**drawn()[1], num_heads=3, **options)


# ---- between the twins ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_to_the_other_twin_and_back(dtype):
    in_numpy, in_torch = drawn(GROUPED, dtype)
    heads = {"num_heads": 6, "num_kv_heads": 2}
    here = qkvlib.numpy.MultiHeadAttention.from_weights(**in_numpy, **heads)
    there = MultiHeadAttention.from_numpy(here)
    again = there.to_numpy()
    assert type(again) is qkvlib.numpy.MultiHeadAttention
    for layer in (there, again):
        assert (layer.num_heads, layer.num_kv_heads) == (6, 2)
        for name, x in in_numpy.items():
            assert dtype_of(getattr(layer, name)) == dtype
            np.testing.assert_array_equal(back(getattr(layer, name)), back(x))
    x, source = (np.random.default_rng(i).normal(size=s) for i, s in enumerate(((4, 12), (5, 10))))
    x, source = x.astype(dtype), source.astype(dtype)
    expected = back(here(x, source, mask=causal))
    assert_near(there(torch.from_numpy(x), torch.from_numpy(source), mask=causal), expected)
    same = MultiHeadAttention.from_weights(**in_torch, **heads).to_numpy()
    np.testing.assert_array_equal(same(x, source), again(x, source))


def test_projections_without_bias_stay_without():
    some = {name: x for name, x in drawn()[0].items() if name not in ("b_K", "b_O")}
    here = qkvlib.numpy.MultiHeadAttention.from_weights(**some, num_heads=3)
    there = MultiHeadAttention.from_numpy(here)
    for layer in (there, there.to_numpy()):
        assert [getattr(layer, name) is None for name in NAMES] == [*[False] * 5, True, False, True]
    assert len(list(there.parameters())) == 6


def test_weights_are_copied_between_the_twins():
    here = qkvlib.numpy.MultiHeadAttention.from_weights(**drawn()[0], num_heads=3)
    there = MultiHeadAttention.from_numpy(here)
    again = there.to_numpy()
    with torch.no_grad():
        for p in there.parameters():
            p *= 3
    for name, x in drawn()[0].items():
        np.testing.assert_array_equal(getattr(here, name), x)
        np.testing.assert_array_equal(getattr(again, name), x)


def test_any_memory_layout_goes_to_torch():
    given = drawn()[0]
    for change in (
        lambda x: x.astype(">f8"),
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
        np.asfortranarray,
    ):
        here = qkvlib.numpy.MultiHeadAttention.from_weights(**given, num_heads=3)
        for name, x in given.items():
            changed = change(x)
            changed.setflags(write=False)
            setattr(here, name, changed)
        there = MultiHeadAttention.from_numpy(here)
        for name, x in given.items():
            np.testing.assert_array_equal(back(getattr(there, name)), x)


def test_dropout_does_not_go_to_numpy_and_a_layer_from_there_has_none():
    layer = MultiHeadAttention(12, 3, dropout=0.5, generator=torch.Generator().manual_seed(0))
    here = layer.to_numpy()
    x = np.random.default_rng(0).normal(size=(4, 12)).astype(np.float32)
    assert_near(here(x), back(layer.eval()(torch.from_numpy(x))))
    assert MultiHeadAttention.from_numpy(here).dropout == 0


def test_what_does_not_go_to_the_other_twin():
    here = qkvlib.numpy.MultiHeadAttention.from_weights(
        **drawn()[0], num_heads=3, rotate=lambda x, positions: x
    )
    for convert in (
        lambda: MultiHeadAttention.from_numpy(here),
        lambda: plain(rotate=lambda x, positions: x).to_numpy(),
    ):
        with pytest.raises(ValueError, match=r"^rotate must be None .* from_weights, with rotate="):
            convert()
    with pytest.raises(TypeError, match=r"W_Q must be .* got torch\.bfloat16; .*float\(\)\.to_num"):
        plain().bfloat16().to_numpy()
    for other in (plain(), drawn()[0], None, qkvlib.numpy.MultiHeadAttention):
        with pytest.raises(
            TypeError, match=r"^other must be a qkvlib\.numpy\..* got .*from_weights"
        ):
            MultiHeadAttention.from_numpy(other)


# ---- torch's own layer ---------------------------------------------------------------------------


def torchs(**options):
    """torch's layer with random weights and biases."""
    options = {"batch_first": True, "dtype": torch.float64} | options
    module = torch.nn.MultiheadAttention(12, 3, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype) / 3)
    return module


def some_tokens():
    return torch.from_numpy(np.random.default_rng(2).normal(size=(2, 4, 12)))


def outputs(layer, module, x):
    """Output and weights of ours and of torch's, with a mask, batch first."""
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    rows = x if module.batch_first else x.transpose(0, 1)
    output, weights_ = module(rows, rows, rows, attn_mask=~mask, average_attn_weights=False)
    yield layer(x, mask=mask), output if module.batch_first else output.transpose(0, 1)
    yield layer.attention_weights(x, mask=mask), weights_


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_from_torchs_own_layer_and_back(bias, batch_first):
    module = torchs(bias=bias, batch_first=batch_first)
    layer = MultiHeadAttention.from_torch(module)
    again = layer.to_torch()
    assert again.batch_first
    assert type(again) is torch.nn.MultiheadAttention
    for other in (module, again):
        for found, expected in outputs(layer, other, some_tokens()):
            assert_near(found, back(expected))
    state, given = again.state_dict(), module.state_dict()
    assert state.keys() == given.keys()
    for name, x in given.items():
        assert torch.equal(state[name], x)
    assert (layer.b_Q is None) == (not bias)


def test_to_torchs_own_layer_and_back():
    layer = plain()
    module = layer.to_torch()
    for found, expected in outputs(layer, module, some_tokens()):
        assert_near(expected, back(found))
    again = MultiHeadAttention.from_torch(module)
    for (name, p), (_, q) in zip(layer.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(p, q), name


@pytest.mark.parametrize("absent", [("b_K",), ("b_O",), ("b_Q", "b_K", "b_V")], ids=str)
def test_a_missing_bias_becomes_zeros_in_torchs_own_layer(absent):
    given = {name: x for name, x in drawn()[1].items() if name not in absent}
    layer = MultiHeadAttention.from_weights(**given, num_heads=3)
    for found, expected in outputs(layer, layer.to_torch(), some_tokens()):
        assert_near(expected, back(found))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_dtype_dropout_and_mode_come_along(dtype, training):
    module = torchs(dtype=dtype, dropout=0.25).train(training)
    layer = MultiHeadAttention.from_torch(module)
    again = layer.to_torch()
    for found in (layer, again):
        assert found.dropout == 0.25
        assert all(m.training is training for m in found.modules())
        assert all(p.dtype == dtype and p.requires_grad for p in found.parameters())
    assert MultiHeadAttention.from_torch(torchs()).dropout == 0


def test_torchs_own_layer_learns_as_ours_does():
    layer, x = plain(), some_tokens()
    module = layer.to_torch()
    layer(x).sin().sum().backward()
    module(x, x, x)[0].sin().sum().backward()
    parts = (layer.query, layer.key, layer.value)
    assert_near(torch.cat([p.weight.grad for p in parts]), back(module.in_proj_weight.grad))
    assert_near(layer.output.bias.grad, back(module.out_proj.bias.grad))


def test_weights_are_copied_from_and_to_torch():
    module = torchs()
    given = {name: x.clone() for name, x in module.state_dict().items()}
    layer = MultiHeadAttention.from_torch(module)
    again = layer.to_torch()
    with torch.no_grad():
        for p in layer.parameters():
            p *= 3
    for other in (module, again):
        for name, x in given.items():
            assert torch.equal(other.state_dict()[name], x)


def test_a_conversion_draws_nothing():
    layer, before = plain(), torch.random.get_rng_state()
    MultiHeadAttention.from_torch(layer.to_torch())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_conversion_stays_on_the_device():
    layer = MultiHeadAttention(12, 3, device="meta")
    module = layer.to_torch()
    for found in (module, MultiHeadAttention.from_torch(module)):
        assert all(p.device.type == "meta" for p in found.parameters())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"add_bias_kv": True}, r"module must be without add_bias_kv .*; train the module without"),
        ({"add_zero_attn": True}, r"module must be without add_zero_attn .*; train the module"),
        ({"kdim": 10}, r"module must be without kdim of its own, got kdim=10, .*; where .*k_proj"),
        ({"vdim": 10}, r"module must be without vdim of its own, got vdim=10"),
        ({"kdim": 10, "vdim": 10}, r"module must be without kdim of its own, .*from_weights"),
    ],
    ids=str,
)
def test_what_does_not_come_from_torchs_own_layer(options, said):
    with pytest.raises(ValueError, match=said):
        MultiHeadAttention.from_torch(torchs(**options))


def test_where_kdim_and_vdim_are_equal_the_weights_can_be_given():
    """As the error says."""
    module = torchs(kdim=10, vdim=10)
    biases = dict(zip(("b_Q", "b_K", "b_V"), module.in_proj_bias.chunk(3)))
    layer = MultiHeadAttention.from_weights(
        W_Q=module.q_proj_weight.T,
        W_K=module.k_proj_weight.T,
        W_V=module.v_proj_weight.T,
        W_O=module.out_proj.weight.T,
        **biases,
        b_O=module.out_proj.bias,
        num_heads=3,
    )
    x = some_tokens()
    source = torch.from_numpy(np.random.default_rng(3).normal(size=(2, 5, 10)))
    assert_near(layer(x, source), back(module(x, source, source)[0]))


def test_only_torchs_own_layer_itself():
    class Other(torch.nn.MultiheadAttention):
        """It may compute something else."""

    for module in (plain(), Other(12, 3), torch.nn.Linear(12, 3), None):
        with pytest.raises(
            TypeError, match=r"module must be a torch\.nn\..*MultiheadAttention its"
        ):
            MultiHeadAttention.from_torch(module)


@pytest.mark.parametrize("dropout", [1.0, 1])
def test_a_dropout_of_everything_does_not_come_along(dropout):
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1.0"):
        MultiHeadAttention.from_torch(torchs(dropout=dropout))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_kv_heads": 1}, r"num_kv_heads must be num_heads = 3 .*got 1; .* use it as it is"),
        ({"d_k": 5}, r"d_k must be d_model / num_heads = 4 in a torch.nn.Mult.*, got 5;"),
        ({"d_v": 2}, r"d_v must be d_model / num_heads = 4 .*got 2; .* use it as it is"),
        ({"d_out": 7}, r"d_out must be d_model = 12 .*got 7; .* use it as it is"),
        ({"d_source": 10}, r"d_source must be d_model = 12 .*got 10; .* use it as it is"),
        ({"rotate": lambda x, positions: x}, r"rotate must be None .*; .* use it as it is"),
    ],
    ids=lambda o: str(o)[:12],
)
def test_what_does_not_go_to_torchs_own_layer(options, said):
    layer = MultiHeadAttention(12, 3, **options)
    with pytest.raises(ValueError, match=said):
        layer.to_torch()


@pytest.mark.parametrize("convert", ["to_torch", "to_numpy"])
def test_a_layer_that_computes_something_else_goes_nowhere(convert):
    """Its weights would come along, and what it does with them would not."""

    class Divided(MultiHeadAttention):
        def attention_scores(self, x, source=None, *, bias=None):
            return super().attention_scores(x, source, bias=bias) / 2

    with pytest.raises(TypeError, match=r"^layer must be a .*Attention itself, got .*Divided;"):
        getattr(Divided(12, 3), convert)()


def test_a_width_that_heads_do_not_divide_does_not_go_to_torchs_own_layer():
    with pytest.raises(ValueError, match=r"d_k must be d_model / num_heads = 2\.4 .*got 3"):
        MultiHeadAttention(12, 5, d_k=3, d_v=3).to_torch()
    odd = MultiHeadAttention.from_weights(**drawn(ATTENTION)[1], num_heads=3)
    with pytest.raises(ValueError, match=r"d_k must be .* = 4 .*got 5"):
        odd.to_torch()


# ---- dropout -------------------------------------------------------------------------------------


def with_dropout(dropout):
    layer = plain()
    layer.dropout = dropout
    return layer


def both_ways(layer, x, mask=None):
    """The output by the fused kernel, and by the weights: a bias of zeros leads there."""
    yield layer(x, mask=mask)
    yield layer(x, mask=mask, bias=torch.zeros(4, 4, dtype=x.dtype))


def test_dropout_is_of_training_alone():
    layer, x = with_dropout(0.5), some_tokens()
    expected = back(plain()(x))
    for training in both_ways(layer, x):
        assert not np.allclose(back(training), expected, atol=0.01)
    state = torch.random.get_rng_state()
    for found in both_ways(layer.eval(), x):
        assert_near(found, expected)
    for found in both_ways(with_dropout(0.0), x):
        assert_near(found, expected)
    assert torch.equal(torch.random.get_rng_state(), state)  # nothing was drawn


def test_weights_are_those_before_dropout():
    layer, x = with_dropout(0.9), some_tokens()
    expected = plain()
    for name in ("attention_weights", "attention_scores", "head_contributions"):
        assert torch.equal(getattr(layer, name)(x), getattr(expected, name)(x))


@pytest.mark.parametrize("way", [0, 1], ids=["fused", "explicit"])
def test_it_drops_weights_and_enlarges_those_it_keeps(way):
    """Each token carries a column of its own, so the output shows the weights."""
    n, dropout = 40, 0.3
    W = {"W_Q": torch.eye(n), "W_K": torch.eye(n), "W_V": torch.eye(n), "W_O": torch.eye(n)}
    layer = MultiHeadAttention.from_weights(
        **{name: w.double() for name, w in W.items()}, num_heads=1
    )
    x = torch.eye(n).double()
    weights_ = layer.attention_weights(x)[0]
    layer.dropout = dropout
    torch.manual_seed(0)
    options = {"bias": torch.zeros(n, n).double()} if way else {}
    found = layer(x, **options)
    kept = found != 0
    np.testing.assert_allclose(back(found[kept]), back(weights_[kept]) / (1 - dropout), rtol=1e-12)
    share = 1 - kept.double().mean()
    assert abs(share - dropout) < 4 * math.sqrt(dropout * (1 - dropout) / n**2)
    assert not torch.equal(kept, layer(x, **options) != 0)


def test_dropout_draws_from_torch_as_torchs_own_layer_does():
    layer, x = with_dropout(0.4), some_tokens()
    module = layer.to_torch()
    torch.manual_seed(3)
    expected = module(x, x, x, need_weights=False)[0]
    torch.manual_seed(3)
    assert_near(layer(x), back(expected))
    torch.manual_seed(3)
    assert_near(layer(x), back(expected))


def test_dropout_keeps_masks_and_gradients():
    layer, x = with_dropout(0.4), some_tokens().requires_grad_()
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[1] = False
    for found in both_ways(layer, x, mask):
        assert_near(found[:, 1], np.broadcast_to(back(layer.b_O), (2, 12)))
        [gradient] = torch.autograd.grad(found[:, :3].sum(), x)
        assert gradient.isfinite().all()
        assert not gradient[:, 3].any()
        assert gradient[:, 0].any()


@pytest.mark.parametrize("dropout", [-0.1, 1, 1.5, math.nan, math.inf])
def test_a_dropout_that_is_no_share_is_refused(dropout):
    with pytest.raises(ValueError, match=r"dropout must (lie in \[0, 1\)|be a finite number), got"):
        MultiHeadAttention(12, 3, dropout=dropout)


@pytest.mark.parametrize("dropout", ["0.1", True, None, torch.tensor(0.1)], ids=str)
def test_a_dropout_that_is_no_number_is_refused(dropout):
    with pytest.raises(TypeError, match="dropout must be a number, got"):
        MultiHeadAttention(12, 3, dropout=dropout)
    assert MultiHeadAttention(12, 3, dropout=0.1).dropout == 0.1
