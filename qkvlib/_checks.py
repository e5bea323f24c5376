"""What both twins ask of their arguments, on plain shapes and numbers.

Every message names the argument, says what was expected, what came and what to try.
"""

import math
import numbers
import operator

import numpy as np


def broadcast(shapes):
    """The shape to which all of the named shapes broadcast; ValueError names them if none."""
    first, *others = shapes.values()
    if all(shape == first for shape in others):  # as mostly, and much faster
        return first
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"the leading axes (batch, heads) must be equal or 1, got {listed}; "
            "insert an axis of size 1 where one is missing, as in x[:, None]"
        ) from None


def check_axes(name, shape, least, layout):
    """`shape` must have at least `least` axes, laid out as `layout`."""
    if len(shape) < least:
        raise ValueError(
            f"{name} must have at least {least} axes, {layout}, got shape {shape}; "
            f"for a single row write {name}[None]"
        )


def check_query_key(query, key):
    """The shape of the scores, `(..., n_query, n_key)`, from the shapes of query and key."""
    check_axes("query", query, 2, "(..., n_query, d_k)")
    check_axes("key", key, 2, "(..., n_key, d_k)")
    if query[-1] != key[-1]:
        raise ValueError(
            f"query and key must have the same width d_k (last axis), got {query[-1]} from "
            f"query {query} and {key[-1]} from key {key}; project both to one width first"
        )
    if query[-1] == 0:
        raise ValueError(f"query and key must have a width d_k of at least 1, got query {query}")
    if key[-2] == 0:
        raise ValueError(
            f"key must hold at least one key, got shape {key} with n_key = 0; "
            "to forbid every key, keep them and pass a mask of False"
        )
    lead = broadcast({"query": query[:-2], "key": key[:-2]})
    return (*lead, query[-2], key[-2])


def check_value(scores, value):
    """`value` must hold one row for each key; returns the leading axes of the output."""
    check_axes("value", value, 2, "(..., n_key, d_v)")
    if value[-2] != scores[-1]:
        raise ValueError(
            f"value must hold one row for each key, n_key = {scores[-1]}, "
            f"got {value[-2]} rows from shape {value}; key and value come from the same tokens"
        )
    return broadcast({"scores": scores[:-2], "value": value[:-2]})


def not_a_mask(mask, kind, converted):
    """What to say to a mask that is no Boolean array of the twin's kind and no Pattern."""
    if hasattr(mask, "dtype"):
        got = mask.dtype
        hint = (
            "a float mask that is added to the scores belongs in bias, a mask of 0 and 1 becomes "
            "Boolean by mask != 0, and torch.nn.MultiheadAttention's masks mean the opposite: ~mask"
        )
    else:
        got = type(mask).__name__
        hint = f"write {converted} for a list, qkvlib.patterns.Pattern(mask) for a rule"
    return f"mask must be a Boolean {kind} (True: may attend) or a Pattern, got {got}; {hint}"


def check_mask_shape(mask, scores):
    """A mask has two axes or as many as the scores, and never enlarges them."""
    n_query, n_key = scores[-2:]
    if len(mask) not in (2, len(scores)):
        raise ValueError(
            f"mask must have 2 axes (n_query, n_key) = {(n_query, n_key)} or as many as the "
            f"scores {scores}, got shape {mask}{_axis_hint(mask, scores)}"
        )
    for got, wanted in zip(mask[::-1], scores[::-1], strict=False):
        if got not in (1, wanted):
            raise ValueError(
                f"mask must broadcast to the scores {scores} without enlarging them, "
                f"got shape {mask}{_fit_hint(mask, scores)}"
            )


def _axis_hint(mask, scores):
    if len(mask) == 1:
        return "; for one rule for all queries write mask[None, :]"
    if len(mask) == len(scores) - 1 and mask[0] not in (1, scores[0]):
        return "; the batch axis is missing: write mask[None]"
    if len(mask) == len(scores) - 1:
        return "; the head axis is missing: write mask[:, None]"
    return "; add axes of size 1 where the mask does not depend on them"


def _fit_hint(mask, scores):
    n_query, n_key = scores[-2:]
    if mask[-2:] == (n_key, n_query):
        return (
            "; it looks transposed: rows are queries, columns are keys, try mask.swapaxes(-2, -1)"
        )
    if len(scores) > 2 and mask == (scores[0], n_key):
        gaps = "None, " * (len(scores) - 2)
        return f"; for one row of keys per batch item write mask[:, {gaps}:]"
    return f"; its last two axes are (n_query, n_key) = {(n_query, n_key)}"


def check_bias_shape(bias, scores):
    """`bias` broadcasts to the scores and never enlarges them."""
    fits = len(bias) <= len(scores) and all(
        got in (1, wanted) for got, wanted in zip(bias[::-1], scores[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"bias must broadcast to the scores {scores} without enlarging them, got shape {bias}; "
            "its last two axes are (n_query, n_key)"
        )


def check_number(name, value):
    """`value` as a Python float: a finite real number, not a Boolean."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"{name} must be a number, got {type(value).__name__}; "
            f"write float({name}) if it is a single number"
        )
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}; look where it was computed")
    return value


def resolve_scale(scale, d_k, limits):
    """`scale` as a float; None means 1 / sqrt(d_k). limits: finfo of the scores' dtype."""
    if scale is None:
        return 1.0 / math.sqrt(d_k)
    scale = check_number("scale", scale)
    if abs(scale) > float(limits.max):
        raise ValueError(
            f"scale must lie between {-limits.max:.4g} and {limits.max:.4g}, the range of "
            f"{limits.dtype}, got {scale}; compute such scores in float64"
        )
    return scale


def check_softcap(softcap, limits):
    """`softcap` as a positive float, or None for no cap. limits: finfo of the scores' dtype."""
    if softcap is None:
        return None
    softcap = check_number("softcap", softcap)
    if softcap <= 0:
        raise ValueError(f"softcap must be greater than 0, got {softcap}; use None for no cap")
    if not float(limits.tiny) <= softcap <= float(limits.max):
        raise ValueError(
            f"softcap must lie between {limits.tiny:.4g} and {limits.max:.4g}, the range of "
            f"{limits.dtype}, got {softcap}; use None for no cap, scale=0 for scores of 0"
        )
    return softcap


def check_count(name, value, *, least=1):
    """`value` as a Python int of at least `least`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name} must be a whole number, got {type(value).__name__} {value!r}; "
            f"write int({name}) if it is one"
        )
    value = int(value)
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return value


def check_flag(name, value):
    """`value` must be True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def check_axis(axis, shape):
    """`axis` must name an axis of `shape`."""
    if isinstance(axis, bool) or not isinstance(axis, numbers.Integral):
        raise TypeError(f"axis must be one whole number, got {type(axis).__name__} {axis!r}")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"axis must name one of the {len(shape)} axes of shape {shape}, got {axis}"
        )


def check_projection(x, W, b):
    """`x @ W + b` must fit: `W (d_in, d_out)`, `b (d_out,)`."""
    check_axes("x", x, 1, "(..., d_in)")
    if len(W) != 2:
        raise ValueError(f"W must have 2 axes (d_in, d_out), got shape {W}")
    if x[-1] != W[0]:
        hint = "; W looks transposed: it acts on the right, x @ W" if x[-1] == W[1] else ""
        raise ValueError(
            f"W must have as many rows as x is wide, d_in = {x[-1]} from x {x}, got W {W}{hint}"
        )
    if b is not None and b != (W[1],):
        raise ValueError(f"b must have shape (d_out,) = {(W[1],)} to fit W {W}, got {b}")


def check_split(shape, num_heads):
    """The last axis of `shape` must be a multiple of the number of heads; returns that number."""
    num_heads = check_count("num_heads", num_heads)
    check_axes("x", shape, 2, "(..., n, num_heads * d)")
    if shape[-1] % num_heads:
        raise ValueError(
            f"the width of x must be a multiple of num_heads = {num_heads}, got {shape[-1]} "
            f"from shape {shape}"
        )
    return num_heads


def head_width(name, width, d_model, num_heads):
    """The width of one head: as given, or d_model // num_heads, which must divide."""
    if width is not None:
        return check_count(name, width)
    if d_model % num_heads:
        raise ValueError(
            f"d_model must be a multiple of num_heads for {name}=None, got d_model = {d_model} "
            f"and num_heads = {num_heads}; or pass {name}"
        )
    return d_model // num_heads


def key_heads(num_kv_heads, num_heads):
    """How many heads keys and values have: as given, which must divide, or one for each query's."""
    if num_kv_heads is None:
        return num_heads
    num_kv_heads = check_count("num_kv_heads", num_kv_heads)
    if num_heads % num_kv_heads:
        raise ValueError(
            f"num_kv_heads must divide num_heads = {num_heads}, so that each of its heads serves "
            f"as many heads of queries, got {num_kv_heads}"
        )
    return num_kv_heads


def check_dropout(dropout):
    """`dropout`, the share of the weights that is dropped, as a float in [0, 1)."""
    dropout = check_number("dropout", dropout)
    if not 0 <= dropout < 1:
        raise ValueError(
            f"dropout must lie in [0, 1), got {dropout}; it is the share of the weights that "
            "training drops, 0 for none"
        )
    return dropout


def check_rotate(rotate):
    """`rotate` must be a function, or None."""
    if rotate is not None and not callable(rotate):
        raise TypeError(
            f"rotate must be a function (x, positions) -> x or None, got {type(rotate).__name__} "
            f"{rotate!r}; pass the function itself"
        )


def check_rotated(given, got):
    """What `rotate` returns must have the shape that it was given."""
    if got != given:
        raise ValueError(
            f"rotate must return x in its shape (..., h, n, d_k) = {given}, got shape {got}"
        )


def check_head_weights(shapes, num_heads, num_kv_heads):
    """W_Q, W_K, W_V, W_O and their biases (None: no bias) must fit together and the heads.

    Returns the numbers of heads, of queries and of keys.
    """
    h = check_count("num_heads", num_heads)
    h_kv = key_heads(num_kv_heads, h)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        if len(shapes[name]) != 2 or 0 in shapes[name]:
            raise ValueError(
                f"{name} must have 2 axes (d_in, d_out), none empty, got shape {shapes[name]}"
            )
    if shapes["W_V"][0] != shapes["W_K"][0]:
        raise ValueError(
            "W_K and W_V must have the same number of rows, d_source, "
            f"got W_K {shapes['W_K']} and W_V {shapes['W_V']}; matrices act on the right, x @ W"
        )
    for name, heads, letter in (("W_Q", h, "num_heads"), ("W_V", h_kv, "num_kv_heads")):
        if shapes[name][1] % heads:
            raise ValueError(
                f"the width of {name} must be a multiple of {letter} = {heads}, "
                f"got shape {shapes[name]}"
            )
    d_k, d_v = shapes["W_Q"][1] // h, shapes["W_V"][1] // h_kv
    if shapes["W_K"][1] != h_kv * d_k:
        raise ValueError(
            f"W_K must have num_kv_heads * d_k = {h_kv} * {d_k} columns, with d_k from W_Q "
            f"{shapes['W_Q']} and num_heads = {h}, got shape {shapes['W_K']}; "
            "where heads of queries share their keys, say num_kv_heads"
        )
    if shapes["W_O"][0] != h * d_v:
        raise ValueError(
            f"W_O must have num_heads * d_v = {h} * {d_v} rows, with d_v from W_V "
            f"{shapes['W_V']} and num_kv_heads = {h_kv}, got shape {shapes['W_O']}"
        )
    for letter in "QKVO":
        bias, width = shapes[f"b_{letter}"], shapes[f"W_{letter}"][1]
        if bias is not None and bias != (width,):
            raise ValueError(
                f"b_{letter} must have shape {(width,)} to fit W_{letter} "
                f"{shapes[f'W_{letter}']}, got {bias}"
            )
    return h, h_kv


def check_layer(name, layer, kind):
    """`layer` must be a `kind`; a class derived from it may compute something else."""
    if type(layer) is not kind:
        raise TypeError(
            f"{name} must be a {kind.__module__}.{kind.__qualname__} itself, "
            f"got {type(layer).__module__}.{type(layer).__qualname__}; "
            "give the weights of another layer to from_weights"
        )


def check_no_rotation(rotate):
    """A layer that goes to the other twin must have no `rotate`."""
    if rotate is not None:
        raise ValueError(
            f"rotate must be None in a layer that goes to the other twin, got {rotate!r}, which "
            "takes arrays of one twin; give the weights to from_weights, with rotate= of that twin"
        )


def check_foreign(**found):
    """What a `torch.nn.MultiheadAttention` may have and a layer of this package has not."""
    there_too = "train the module without, or keep it as it is"
    from_weights = (
        "where kdim and vdim are equal give the weights to from_weights, "
        "W_K=module.k_proj_weight.T and so on"
    )
    for name, got in found.items():
        if got:
            hint = there_too if name.startswith("add") else from_weights
            raise ValueError(
                f"module must be without {name} of its own, got {name}={got}, "
                f"which this layer does not have; {hint}"
            )


def check_standard(shapes, num_heads, num_kv_heads, rotate):
    """A layer that becomes a `torch.nn.MultiheadAttention` must be as plain as that is."""
    d_model = shapes["W_Q"][0]
    widths = {
        "num_kv_heads": (num_kv_heads, num_heads, "num_heads"),
        "d_k": (shapes["W_Q"][1] / num_heads, d_model / num_heads, "d_model / num_heads"),
        "d_v": (shapes["W_O"][0] / num_heads, d_model / num_heads, "d_model / num_heads"),
        "d_out": (shapes["W_O"][1], d_model, "d_model"),
        "d_source": (shapes["W_K"][0], d_model, "d_model"),
    }
    for name, (got, wanted, letters) in widths.items():
        if got != wanted:
            raise ValueError(
                f"{name} must be {letters} = {wanted:g} in a torch.nn.MultiheadAttention, "
                f"got {got:g}; this layer is an nn.Module too: use it as it is"
            )
    if rotate is not None:
        raise ValueError(
            f"rotate must be None in a torch.nn.MultiheadAttention, got {rotate!r}; "
            "this layer is an nn.Module too: use it as it is"
        )


def check_width(x, d_model):
    """A layer input `x (..., d_model)`."""
    check_axes("x", x, 1, "(..., d_model)")
    if x[-1] != d_model:
        raise ValueError(f"x must be d_model = {d_model} wide (last axis), got shape {x}")


def check_tokens(x, width, name="x", letter="d_model"):
    """The tokens `x (..., n, width)` that are attended from or to, at least one."""
    check_axes(name, x, 2, f"(..., n, {letter})")
    if x[-1] != width:
        raise ValueError(f"{name} must be {letter} = {width} wide (last axis), got shape {x}")
    if x[-2] == 0:
        raise ValueError(
            f"{name} must hold at least one token, got shape {x} with n = 0; leave empty texts out"
        )


def check_sources(x, source, value_source, d_model, d_source):
    """What queries, keys and values are made of: `source` and `value_source` may be None.

    Keys are made of x without a source, values of what the keys are made of.
    """
    check_tokens(x, d_model)
    if source is None and d_source != d_model:
        raise ValueError(
            f"source must be given: keys and values are made of tokens d_source = {d_source} wide, "
            f"and x is d_model = {d_model} wide; with value_source alone the keys are made of x too"
        )
    for name, shape in (("source", source), ("value_source", value_source)):
        if shape is not None:
            check_tokens(shape, d_source, name, "d_source")
    keys = x if source is None else source
    if value_source is not None and value_source[-2] != keys[-2]:
        raise ValueError(
            f"value_source must hold one token for each key, n_source = {keys[-2]}, "
            f"got shape {value_source}; keys and values belong together one by one"
        )


def _kind(x):
    """The class of `x` and the module it is of, which tells the twins apart."""
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def check_cache(cache, kind, source=None, value_source=None):
    """A cache must be a `kind`, and holds keys and values of x itself, not of a source."""
    if not isinstance(cache, kind):
        raise TypeError(
            f"cache must be a {kind.__module__.rpartition('.')[0]}.{kind.__name__}, "
            f"got {_kind(cache)}; make one with KeyValueCache()"
        )
    if source is not None or value_source is not None:
        raise ValueError(
            "cache must be None with a source: it holds the keys and values of the tokens of x "
            "so far, and those of a source do not grow; leave source and value_source out"
        )


def check_entry(key, value, held):
    """The shapes of new keys and values, and of those that a cache holds (None: none yet)."""
    check_axes("key", key, 2, "(..., n, d_k)")
    check_axes("value", value, 2, "(..., n, d_v)")
    if key[-2] != value[-2]:
        raise ValueError(
            f"key and value must hold as many rows, one for each token, got key {key} and "
            f"value {value}"
        )
    if held is None:
        return
    for name, new, old in (("key", key, held[0]), ("value", value, held[1])):
        if (*new[:-2], new[-1]) != (*old[:-2], old[-1]):
            raise ValueError(
                f"{name} must have the shape {old} of those in the cache but for n (axis -2), "
                f"got {new}; for other texts make a new KeyValueCache()"
            )


def check_length(length, most):
    """The length to which a cache is cut, no more than it holds."""
    length = check_count("length", length, least=0)
    if length > most:
        raise ValueError(f"length must be at most {most}, what the cache holds, got {length}")
    return length


def check_norm(x, weight, bias):
    """`weight` and `bias` of a norm over the last axis of `x`."""
    check_axes("x", x, 1, "(..., d_model)")
    if x[-1] == 0:
        raise ValueError(f"x must not be empty along its last axis, got shape {x}")
    for name, shape in (("weight", weight), ("bias", bias)):
        if shape is not None and shape != (x[-1],):
            raise ValueError(
                f"{name} must have shape (d_model,) = {(x[-1],)} to fit x {x}, got {shape}"
            )


def check_norm_weights(weight, bias):
    """The weight `(d_model,)` with which a norm is made, and its bias of the same shape, or None.

    There is no x yet that they could fit.
    """
    if len(weight) != 1 or weight[0] == 0:
        raise ValueError(
            f"weight must have shape (d_model,), a number for each column, got {weight}; "
            "a norm has one weight for all rows"
        )
    if bias is not None and bias != weight:
        raise ValueError(f"bias must have shape (d_model,) = {weight} to fit weight, got {bias}")


def check_rotation(x, cos, sin, pairing):
    """`cos` and `sin` must fit `x`: an angle for each pair of features, and no axis too many."""
    check_axes("x", x, 1, "(..., n, d_k)")
    check_pairs(x[-1])
    if pairing not in ("interleaved", "half"):
        raise ValueError(
            f'pairing must be "interleaved" (features 0 and 1) or "half" (features 0 and d_k/2), '
            f"got {pairing!r}; weights belong to one of them"
        )
    if cos != sin:
        raise ValueError(f"cos and sin must have the same shape, got cos {cos} and sin {sin}")
    wanted = (*x[:-1], x[-1] // 2)
    fits = len(cos) in (2, len(x)) and all(
        got in (1, size) for got, size in zip(cos[::-1], wanted[::-1], strict=False)
    )
    if not fits or len(cos) > len(x) or cos[-1] != wanted[-1]:
        raise ValueError(
            f"cos and sin must have 2 axes (n, d_k // 2) = {wanted[-2:]} or as many as x {x}, each "
            f"as long as in {wanted} or 1, got shape {cos}; rotary_angles(positions, d_k) makes "
            "them, and where the head axis is missing write cos[:, None] and sin[:, None]"
        )


def check_pairs(d_k):
    """A width whose features can be paired, as an int."""
    d_k = check_count("d_k", d_k, least=2)
    if d_k % 2:
        raise ValueError(f"d_k must be even, for features turn in pairs, got {d_k}")
    return d_k


def check_base(base):
    """The base of the wavelengths, as a float of at least 1."""
    base = check_number("base", base)
    if base < 1:
        raise ValueError(f"base must be at least 1, got {base}; the usual one is 10000")
    return base


def check_gradient(name, grad, wanted):
    """A gradient must have the shape of what it is the gradient of."""
    if grad != wanted:
        raise ValueError(
            f"{name} must have the shape of what came out, {wanted}, got {grad}; "
            "a loss that ignores some of it has gradient 0 there"
        )


def check_buckets(bidirectional, num_buckets, max_distance):
    """How many buckets each direction gets, and from where on all is one bucket."""
    check_flag("bidirectional", bidirectional)
    num_buckets = check_count("num_buckets", num_buckets, least=4 if bidirectional else 2)
    buckets = num_buckets // 2 if bidirectional else num_buckets
    max_distance = check_count("max_distance", max_distance)
    if max_distance <= buckets // 2:
        raise ValueError(
            f"max_distance must be greater than {buckets // 2}, the distances that {num_buckets} "
            f"buckets tell apart one by one, got {max_distance}; take fewer buckets"
        )
    return buckets, max_distance


def check_distance_table(query, table):
    """`table` must hold a row as wide as the query for each distance from -k to k."""
    check_axes("query", query, 2, "(..., n_query, d_k)")
    if len(table) != 2 or table[0] % 2 == 0 or table[1] != query[-1] or table[1] == 0:
        raise ValueError(
            "table must have shape (2 * k + 1, d_k), a row for each distance from -k to k, with "
            f"d_k = {query[-1]} from query {query} and at least 1, got {table}"
        )


def check_lengths(lengths, n_key):
    """`lengths`, an integer NumPy array, must lie between 0 and n_key."""
    if lengths.dtype.kind not in "iu":
        raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}; write them as ints")
    if lengths.size and not (lengths.min() >= 0 and lengths.max() <= n_key):
        raise ValueError(
            f"lengths must lie between 0 and n_key = {n_key}, "
            f"got {lengths.min()} to {lengths.max()}"
        )


def check_function(name, value):
    """`value` must be a function."""
    if not callable(value):
        raise TypeError(
            f"{name} must be a function, got {type(value).__name__} {value!r}; "
            "pass the function itself, as in activation=gelu"
        )


def check_norm_order(norm):
    """`norm` must be one of the two orders of a block."""
    if norm not in ("pre", "post"):
        raise ValueError(f'norm must be "pre" or "post", got {norm!r}')


def _is_whole(dtype):
    return "int" in getattr(dtype, "name", str(dtype))


def check_range(n_query, n_key, offset, array=np.ndarray):
    """Sizes and offset of a mask with their defaults filled in; an offset may be an `array`."""
    n_query = check_count("n_query", n_query, least=0)
    n_key = check_count("n_key", n_query if n_key is None else n_key)
    if offset is None:
        return n_query, n_key, n_key - n_query
    if isinstance(offset, array):
        if not _is_whole(offset.dtype):
            raise TypeError(f"offset must hold whole numbers, got {offset.dtype}; cast it to int")
        return n_query, n_key, offset
    if isinstance(offset, bool) or not isinstance(offset, numbers.Integral):
        raise TypeError(
            f"offset must be a whole number, or an integer {array.__name__} with one for each "
            f"batch item, got {type(offset).__name__} {offset!r}"
        )
    return n_query, n_key, int(offset)


def check_shift(offset):
    """`offset` as an int, or an array of them `(..., 1, 1)`: for NumPy of int64, its own copy."""
    if not hasattr(offset, "ndim"):
        return check_count("offset", offset, least=-math.inf)
    if not _is_whole(offset.dtype):
        raise TypeError(f"offset must hold whole numbers, got {offset.dtype}; cast it to int")
    if not offset.ndim:
        return int(offset)
    if tuple(offset.shape[-2:]) != (1, 1):
        raise ValueError(
            "offset must be a whole number or end in two axes of size 1, for queries and keys, "
            f"got shape {tuple(offset.shape)}; write offset[..., None, None]"
        )
    return offset.astype(np.int64) if isinstance(offset, np.ndarray) else offset


def check_span(first, last, n_key):
    """The positions of some queries, anywhere, and a number of keys, as ints."""
    first = check_count("first", first, least=-math.inf)
    last = check_count("last", last, least=-math.inf)
    return first, last, check_count("n_key", n_key, least=0)


def check_stretches(name, answer):
    """What the function of this name, given to a Pattern, told: a list of pairs of ints."""
    try:
        return [(operator.index(start), operator.index(stop)) for start, stop in answer]
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} of a Pattern must answer with a list of stretches (start, stop), two whole "
            f"numbers each, got {answer!r}; [] holds no key, [(0, n_key)] all"
        ) from None


def check_block(name, indices, n):
    """`indices` must be a range of whole steps within 0 and n."""
    if not isinstance(indices, range) or indices.step != 1:
        raise TypeError(f"{name} must be a range of indices one after the other, got {indices!r}")
    if not 0 <= indices.start <= indices.stop <= n:
        raise ValueError(f"{name} must lie within range(0, {n}), got {indices}")


def check_cover(name, n, block):
    """What is known of `n` positions must do for all keys of the whole that a block is part of."""
    if block is not None and block.sizes[1] > n:
        raise ValueError(
            f"{name} must cover every key, n_key = {block.sizes[1]}, got {n} positions; "
            "positions are counted from the first key"
        )


def check_drawn(count, number, generator):
    """`count` blocks must be there to be drawn, by a generator of NumPy."""
    if count > number:
        raise ValueError(f"count must be at most the number of blocks, {number}, got {count}")
    if not isinstance(generator, np.random.Generator):
        raise TypeError(
            f"generator must be a numpy.random.Generator, got {type(generator).__name__}; "
            "write np.random.default_rng(seed), also for torch"
        )


def check_ids(ids):
    """`ids (..., n)` of documents: an array of whole numbers, for NumPy of int64."""
    is_empty = 0 in ids.shape  # whose dtype says nothing: an empty list is floating for NumPy
    if not (is_empty or _is_whole(ids.dtype)):
        raise TypeError(f"ids must be whole numbers, got {ids.dtype}; number the documents")
    if is_empty or ids.ndim == 0:
        raise ValueError(
            f"ids must have shape (n,) or (..., n), none empty, got {tuple(ids.shape)}"
        )
    return ids.astype(np.int64) if isinstance(ids, np.ndarray) else ids


def check_answer(answer, positions):
    """The shape of a rule's answer, written out for positions of this shape."""
    try:
        shape = np.broadcast_shapes(answer, positions)
    except ValueError:
        shape = ()
    if shape[-2:] != positions[-2:]:
        raise ValueError(
            f"a rule must answer for each pair of positions, shape {positions}, "
            f"got shape {answer}; compare i and j as they come"
        )
    return shape


def check_tables(token_table, position_table):
    """The shapes of an encoder's tables: `(vocabulary, d_model)` and `(n_max, d_model)`."""
    for name, shape, rows in (
        ("token_table", token_table, "vocabulary"),
        ("position_table", position_table, "n_max"),
    ):
        if len(shape) != 2:
            raise ValueError(f"{name} must have 2 axes ({rows}, d_model), got shape {shape}")
    if token_table[1] != position_table[1]:
        raise ValueError(
            "token_table and position_table must have the same width d_model, "
            f"got {token_table} and {position_table}"
        )


def check_token_table(shape):
    """The shape of a decoder's table, `(vocabulary, d_model)`."""
    if len(shape) != 2:
        raise ValueError(f"token_table must have 2 axes (vocabulary, d_model), got shape {shape}")


def check_text(ids, n_max, held=0):
    """Token ids `(..., n)`, at least one and no more than there are positions.

    held: how many tokens a cache holds already.
    """
    check_axes("ids", ids, 1, "(..., n)")
    if ids[-1] == 0:
        raise ValueError(
            f"ids must hold at least one token, got shape {ids} with n = 0; leave empty texts out"
        )
    if held + ids[-1] > n_max:
        before = f" after {held} in the cache" if held else ""
        raise ValueError(
            f"ids must hold at most n_max = {n_max} tokens, as many as there are positions, "
            f"got {ids[-1]} from shape {ids}{before}; cut the text"
        )


def check_prompt(ids):
    """The ids of one text `(n,)`, at least one."""
    if len(ids) != 1 or ids[0] == 0:
        raise ValueError(
            f"ids must be one text (n,) of at least one token, got shape {ids}; "
            "texts in a batch are continued one by one"
        )


def check_decoder(model):
    """What is decoded with must answer as `Decoder` does."""
    for name in ("new_cache", "next_logits"):
        if not callable(getattr(model, name, None)):
            raise TypeError(
                "model must have new_cache() and next_logits(ids, cache=cache), as Decoder has, "
                f"got {type(model).__name__} without {name}"
            )


def check_block_caches(cache, kind, num_blocks):
    """A decoder's cache must be a list of one `kind` for each block, in step; how much it holds."""
    name = kind.__name__
    if not isinstance(cache, list):
        raise TypeError(
            f"cache must be a list of one {name} for each block, got {type(cache).__name__}; "
            "make one with decoder.new_cache()"
        )
    for one in cache:
        if not isinstance(one, kind):
            raise TypeError(
                f"cache must hold one {name} for each block, got {_kind(one)}; "
                "make one with decoder.new_cache()"
            )
    if len(cache) != num_blocks:
        raise ValueError(
            f"cache must hold one {name} for each of the {num_blocks} blocks, got {len(cache)} "
            "from another model; make one with decoder.new_cache()"
        )
    if len({id(one) for one in cache}) < num_blocks:
        raise ValueError(
            f"cache must hold a {name} of its own for each of the {num_blocks} blocks, got the "
            "same one more than once; make one with decoder.new_cache()"
        )
    lengths = {len(one) for one in cache}
    if len(lengths) > 1:
        raise ValueError(
            f"cache must hold the same tokens for each block, got {sorted(lengths)} of them; "
            "make a new one with decoder.new_cache()"
        )
    return max(lengths, default=0)


def check_temperature(temperature, limits):
    """`temperature` as a positive float. limits: finfo of the logits' dtype."""
    temperature = check_number("temperature", temperature)
    if not float(limits.tiny) <= temperature <= float(limits.max):
        raise ValueError(
            f"temperature must be greater than 0, between {limits.tiny:.4g} and {limits.max:.4g} "
            f"for {limits.dtype}, got {temperature}; the nearer to 0, the more the greatest logit "
            "gets"
        )
    return temperature


def check_sampling(temperature, top_k, top_p):
    """What `generate` samples by: a temperature of at least 0, cuts that are None or in range."""
    if check_number("temperature", temperature) < 0:
        raise ValueError(
            f"temperature must be at least 0, got {temperature}; 0 takes the greatest logit"
        )
    check_cuts(top_k, top_p)


def check_cuts(top_k, top_p):
    """`top_k` and `top_p` as numbers, or None for no cut."""
    if top_k is not None:
        top_k = check_count("top_k", top_k)
    if top_p is not None:
        top_p = check_number("top_p", top_p)
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must be greater than 0 and at most 1, got {top_p}")
    return top_k, top_p


def check_logits(logits):
    """Logits `(..., vocabulary)` to choose from, at least one in a row."""
    check_axes("logits", logits, 1, "(..., vocabulary)")
    if logits[-1] == 0:
        raise ValueError(f"logits must not be empty along their last axis, got shape {logits}")


def check_next_logits(logits):
    """What a model's `next_logits` returns for one text: `(vocabulary,)`, not empty."""
    if len(logits) != 1 or logits[0] == 0:
        raise ValueError(
            "next_logits(ids, cache=cache) of the model must return one logit for each token of "
            f"the vocabulary, (vocabulary,), for ids (n,); got shape {logits}"
        )


def check_greatest(logits):
    """The greatest logit of each row, in a NumPy array, must be a number to choose by."""
    if not np.isfinite(logits).all():
        bad = logits[~np.isfinite(logits)].flat[0]
        raise ValueError(
            "the greatest of the logits in each row must be finite, so that there is something to "
            f"choose, got {bad}; look where the model computed it"
        )


def check_table(name, indices, table, layout):
    """`indices`, an integer NumPy array, must name rows of a table of this shape."""
    if len(table) != 2:
        raise ValueError(f"the table must have 2 axes {layout}, got shape {table}")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, got {indices.dtype}; cast them to int")
    if indices.size and not (indices.min() >= 0 and indices.max() < table[0]):
        raise ValueError(
            f"{name} must lie between 0 and {table[0] - 1}, the rows of a table of shape {table}, "
            f"got {indices.min()} to {indices.max()}"
        )


def check_eps(eps):
    """`eps` as a float of at least 0."""
    eps = check_number("eps", eps)
    if eps < 0:
        raise ValueError(f"eps must be at least 0, got {eps}")
    return eps


def check_feed_forward(W_1, b_1, W_2, b_2):
    """The shapes of a feed-forward layer must fit together."""
    if len(W_1) != 2 or len(W_2) != 2 or W_2[::-1] != W_1 or 0 in W_1:
        raise ValueError(
            "W_1 and W_2 must have shapes (d_model, d_ff) and (d_ff, d_model), none empty, "
            f"got {W_1} and {W_2}; matrices act on the right, x @ W"
        )
    for name, got, width in (("b_1", b_1, W_1[1]), ("b_2", b_2, W_2[1])):
        if got != (width,):
            raise ValueError(f"{name} must have shape {(width,)} to fit its matrix, got {got}")


def output_matrices(block):
    """The last matrix of each part of a block, by the names that this package gives them."""
    parts = {part: getattr(block, part, None) for part in ("attention", "feed_forward")}
    matrices = {
        part: getattr(owner, name)
        for part, owner in parts.items()
        for name in ("W_O", "W_2", "W_down")
        if hasattr(owner, name)
    }
    for part, owner in parts.items():
        if part not in matrices:
            raise TypeError(
                f"block must have {part} with an output matrix W_O, W_2 or W_down, as "
                f"TransformerBlock has, got {type(block).__name__} with {type(owner).__name__}; "
                "scale the last matrix of another kind of part by hand"
            )
    return matrices.values()


def check_gated(shapes):
    """The shapes of a gated feed-forward layer, by name, must fit together (None: no bias)."""
    gate, up, down = (shapes[f"W_{part}"] for part in ("gate", "up", "down"))
    if len(gate) != 2 or up != gate or down != gate[::-1] or 0 in gate:
        raise ValueError(
            "W_gate and W_up must have shape (d_model, d_ff), W_down (d_ff, d_model), none empty, "
            f"got {gate}, {up} and {down}; matrices act on the right, x @ W"
        )
    for part in ("gate", "up", "down"):
        bias, width = shapes[f"b_{part}"], shapes[f"W_{part}"][1]
        if bias is not None and bias != (width,):
            raise ValueError(
                f"b_{part} must have shape {(width,)} to fit W_{part} {shapes[f'W_{part}']}, "
                f"got {bias}"
            )
