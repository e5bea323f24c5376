"""What chapters 1 to 3 train, seed by seed, and what they assert of it."""

import numpy as np

from qkvlib.book.example import COORDINATES, X
from qkvlib.book.experiments import copy_previous, learn_rules, loss_curve, mirror
from qkvlib.book.experiments.tasks import pronoun_sentences
from qkvlib.numpy import attention_weights

SEEDS = range(8)


def mirror_figures(seed):
    told, not_told = mirror(seed), mirror(seed, positions=None)
    uniform = mirror(seed, attention="uniform")
    return {
        "weight on the mirror token, untrained, highest head": told.before.max(),
        "weight on the mirror token, trained, mean of the heads": told.after.mean(),
        "accuracy": told.accuracy,
        "accuracy without positions": not_told.accuracy,
        "accuracy with uniform attention": uniform.accuracy,
        "without positions minus uniform": not_told.accuracy - uniform.accuracy,
    }


def copy_figures(seed):
    untied, query_key = copy_previous(seed), copy_previous(seed, tied="query-key")
    return {
        "accuracy": untied.accuracy,
        "weight on the token before": np.diag(untied.weights, -1).mean(),
        "accuracy, queries and keys tied": query_key.accuracy,
        "weight on the token itself, queries and keys tied": np.diag(query_key.weights).mean(),
        "accuracy, keys and values tied": copy_previous(seed, tied="key-value").accuracy,
    }


def loss_figures(seed):
    scaled, unscaled = loss_curve(seed), loss_curve(seed, scale=1.0)
    return {
        "loss after 60 steps": scaled[60],
        "loss after 60 steps without scale": unscaled[60],
        "last loss": scaled[-1],
        "last loss without scale": unscaled[-1],
    }


def rules_figures(seed):
    W_Q, W_K, accuracy = learn_rules(seed)
    M = W_Q @ W_K.T
    sentences, is_word, pronoun, name = pronoun_sentences()
    weights = attention_weights(sentences @ W_Q, sentences @ W_K, mask=is_word[:, None])
    he, paul = 3, 0
    pairs = [("he/she", "he/she"), ("refers", "name"), ("refers", "refers"), ("refers", "action")]
    return {
        **{f"M[{a}, {b}]": M[COORDINATES.index(a), COORDINATES.index(b)] for a, b in pairs},
        "accuracy": accuracy,
        "mean weight on the right name": weights[np.arange(len(name)), pronoun, name].mean(),
        "weight of Paul for he, running sentence": attention_weights(X @ W_Q, X @ W_K)[he, paul],
    }


EXPERIMENTS = {
    "mirror": mirror_figures,
    "copy_previous": copy_figures,
    "loss_curve": loss_figures,
    "learn_rules": rules_figures,
}

BOUNDS = {
    "mirror": {
        "weight on the mirror token, untrained, highest head": "< 0.12",
        "weight on the mirror token, trained, mean of the heads": "> 0.5",
        "accuracy": "> 0.95",
        "without positions minus uniform": "< 0.1",
    },
    "copy_previous": {
        "accuracy": "> 0.99",
        "weight on the token before": "> 0.5",
        "accuracy, queries and keys tied": "< 0.85",
        "accuracy, keys and values tied": "> 0.95",
    },
    "loss_curve": {},
    "learn_rules": {
        "M[he/she, he/she]": "> 2.5",
        "M[refers, name]": "> 1.5",
        "M[refers, refers]": "< -1",
        "mean weight on the right name": "> 0.9",
    },
}
