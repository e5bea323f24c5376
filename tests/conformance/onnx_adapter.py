"""ONNX operators in the words of this package.

What is here casts, reshapes, pads and translates names, and computes nothing: each product,
softmax, cap, norm and rotation is a call into the backend's library.
"""

from dataclasses import dataclass

import numpy as np

from qkvlib.patterns import causal, window


@dataclass(frozen=True)
class Adapter:
    """The operators on one backend, given NumPy arrays under ONNX's names.

    lib: the backend's library; give: what makes its arrays of NumPy's, and None of None. An
    operator returns the backend's arrays under the names of its outputs.
    """

    lib: object
    give: object

    def Softmax(self, input, axis=-1):
        return {"output": self.lib.softmax(self.give(input), axis)}

    def LogSoftmax(self, input, axis=-1):
        return {"output": self.lib.log_softmax(self.give(input), axis)}

    def LayerNormalization(self, X, Scale, B, axis=-1, epsilon=1e-5):
        x, weight, bias = map(self.give, (as_rows(X, axis), Scale.ravel(), B.ravel()))
        return {"Y": self.lib.layer_norm(x, weight, bias, epsilon).reshape(X.shape)}

    def RMSNormalization(self, X, scale, axis=-1, epsilon=1e-5):
        x, weight = map(self.give, (as_rows(X, axis), scale.ravel()))
        return {"Y": self.lib.rms_norm(x, weight, epsilon).reshape(X.shape)}

    def RotaryEmbedding(
        self,
        X,
        cos_cache,
        sin_cache,
        position_ids=None,
        interleaved=0,
        num_heads=0,
        rotary_embedding_dim=0,
    ):
        """Features from `rotary_embedding_dim` on, if that is given, stay as they are."""
        if position_ids is not None:
            cos_cache, sin_cache = cos_cache[position_ids], sin_cache[position_ids]
        cos, sin = self.give(cos_cache[:, None]), self.give(sin_cache[:, None])
        pairing = "interleaved" if interleaved else "half"
        y = self.heads(X, num_heads)
        width = rotary_embedding_dim or y.shape[-1]
        y[..., :width] = self.lib.rotate(y[..., :width], cos, sin, pairing=pairing)
        return {"Y": self.merged(y, X)}

    def Attention(
        self,
        Q,
        K,
        V,
        attn_mask=None,
        past_key=None,
        past_value=None,
        nonpad_kv_seqlen=None,
        q_num_heads=None,
        kv_num_heads=None,
        scale=None,
        softcap=0.0,
        softmax_precision=None,  # weights of the scores' own precision are near enough
        qk_matmul_output_mode=0,
        **limits,
    ):
        cache = self.lib.KeyValueCache()
        if past_key is not None:
            cache.append(self.give(past_key), self.give(past_value))
        offset = len(cache)
        query = self.heads(Q, q_num_heads)
        present = cache.append(self.heads(K, kv_num_heads), self.heads(V, kv_num_heads))
        repeats = query.shape[1] // present[0].shape[1]
        key, value = (self.lib.repeat_heads(x, repeats) for x in present)

        shape = (*query.shape[:-1], key.shape[-2])
        mask, bias = self.mask_and_bias(shape, attn_mask, nonpad_kv_seqlen, offset, **limits)
        options = {"scale": scale, "softcap": softcap or None}
        allowed = {"mask": self.give(mask), "bias": self.give(bias)}
        output = self.lib.scaled_dot_product_attention(query, key, value, **allowed, **options)
        mode = qk_matmul_output_mode
        if mode == 3:
            on_the_way = self.lib.attention_weights(query, key, **allowed, **options)
        else:
            options |= {} if mode else {"softcap": None}
            added = self.give(with_mask(bias, mask)) if mode == 2 else None
            on_the_way = self.lib.attention_scores(query, key, bias=added, **options)
        return {
            "Y": self.merged(output, Q),
            "present_key": present[0],
            "present_value": present[1],
            "qk_matmul_output": on_the_way,
        }

    def mask_and_bias(self, shape, attn_mask, nonpad_kv_seqlen, offset, **limits):
        """All that limits scores of this shape, as one Boolean array or None, and what is added."""
        masks, bias = [], None
        if nonpad_kv_seqlen is not None:
            offset = nonpad_kv_seqlen - shape[-2]
            padding = self.lib.padding_mask(self.give(nonpad_kv_seqlen), shape[-1])
            masks.append(np.asarray(padding)[:, None])
        for rule in rules(**limits):
            written = rule.array(*shape[-2:], offset=offset)
            masks.append(written if written.ndim == 2 else written[:, None])
        if attn_mask is not None and attn_mask.dtype == bool:
            masks.append(lengthened(attn_mask, shape[-1], False))
        elif attn_mask is not None:
            bias = lengthened(attn_mask, shape[-1], -np.inf)
        masks = [np.broadcast_to(mask, shape) for mask in masks]
        return np.logical_and.reduce(masks) if masks else None, bias

    def heads(self, x, num_heads):
        """What comes with three axes has its heads side by side."""
        x = self.give(x)
        return self.lib.split_heads(x, num_heads) if x.ndim == 3 else x

    def merged(self, y, like):
        return self.lib.merge_heads(y) if like.ndim == 3 else y


def as_rows(X, axis):
    """The axes from `axis` on as one."""
    return X.reshape(*X.shape[: axis % X.ndim], -1)


def rules(is_causal=0, left_window_size=-1, right_window_size=-1):
    """Who may attend to whom by position; -1 is no limit, and both sides count the key itself."""
    if is_causal:
        yield causal
    if left_window_size >= 0:
        yield window(left_window_size + 1) | ~causal
    if right_window_size >= 0:
        yield window(right_window_size + 1) | causal


def lengthened(mask, n_key, value):
    """A mask that stops short of the last keys says `value` of them."""
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, n_key - mask.shape[-1])]
    return np.pad(mask, widths, constant_values=value)


def with_mask(bias, mask):
    """The bias with -inf for what the mask forbids."""
    if mask is None:
        return bias
    return np.where(mask, np.float32(0) if bias is None else bias, -np.inf)
