"""What a head learns when nobody writes its matrices: who is meant by a pronoun?"""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from qkvlib.book.experiments.tasks import pronoun_sentences
from qkvlib.book.experiments.training import accuracy, train
from qkvlib.torch import attention_scores, project


class Rules(NamedTuple):
    """What `learn_rules` found.

    W_Q, W_K (6, 2): the learned matrices, rows as in `qkvlib.book.example.COORDINATES`.
    accuracy: the share of the sentences in which the pronoun reads its name most.
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    accuracy: float


def learn_rules(seed=0):
    """Train W_Q and W_K until the pronoun of each of 32 sentences reads the name it stands for.

    seed: a number, or a NumPy Generator. Only the start is random, normal with standard
    deviation 0.4: each of the 300 steps reads all the sentences of `tasks.pronoun_sentences`.

    >>> W_Q, W_K, accuracy = learn_rules()
    >>> refers, name = 2, 0
    >>> (W_Q @ W_K.T)[refers, name] > 1.5, accuracy
    (np.True_, 1.0)
    """
    generator = np.random.default_rng(seed)
    model = PronounHead(*0.4 * generator.standard_normal((2, 6, 2)))
    sentences = pronoun_sentences()
    train(model, [sentences] * 300, lr=0.03, weight_decay=0.3)
    W_Q, W_K = (W.detach().numpy() for W in (model.W_Q, model.W_K))
    return Rules(W_Q, W_K, accuracy(model, sentences))


class PronounHead(nn.Module):
    """The queries and keys of one head, W_Q and W_K (6, 2), asked for the pronoun's row alone."""

    def __init__(self, W_Q, W_K):
        super().__init__()
        self.W_Q = nn.Parameter(torch.from_numpy(W_Q))
        self.W_K = nn.Parameter(torch.from_numpy(W_K))

    def forward(self, X, is_word, pronoun):
        """The pronoun's score for each word, (sentences, 8); -inf after the sentence's end."""
        asking = X[torch.arange(len(X)), pronoun]
        query = project(asking, self.W_Q)[:, None]
        scores = attention_scores(query, project(X, self.W_K))
        return scores.squeeze(-2).masked_fill(~is_word, -torch.inf)
