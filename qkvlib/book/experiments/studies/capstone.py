"""What chapter 8 trains, seed by seed, and what it asserts of it."""

import numpy as np

from qkvlib.book.experiments import storyteller as st

SEEDS = range(5)


def teller_figures(seed):
    told = st.tell(seed)
    model, read, unread = told.model, told.read, told.unread
    of_read, of_unread = st.places(read), st.places(unread)
    stories = st.write(model, read, np.random.default_rng(seed), 64)
    possible = set(st.all_stories())
    meant, other = (
        st.reading(model, read, of_read.asks, w) for w in (of_read.meant, of_read.other)
    )
    without = st.muting(model, read, of_read)
    return {
        "bits a story": st.bits(model, read),
        "right name, stories read": st.right(model, read, of_read.asks),
        "right deed, stories read": st.right(model, read, of_read.deed),
        "right name, two who never met": st.right(model, unread, of_unread.asks),
        "stories that could be true, of those written": np.mean([s in possible for s in stories]),
        "most that a head reads of the letter before": st.previous(model, read).max(),
        "most that a head prefers the name meant": (meant - other).max(),
        "right name without the head of layer 1 it needs most": without[1, :, 0].min(),
    }


def peeking_figures(seed):
    """With the future in sight the loss falls below what is possible; how far is chance."""
    told = st.tell(seed, steps=100, kind=st.Peeking)
    below = told.losses[-10:].mean() < told.read.least() / 2
    return {"loss below half of the least": float(below)}


EXPERIMENTS = {"storyteller": teller_figures, "peeking": peeking_figures}

BOUNDS = {
    "storyteller": {
        "bits a story": "< 9.5",
        "right name, stories read": "> 0.95",
        "right deed, stories read": "> 0.95",
        "right name, two who never met": "> 0.5",
        "stories that could be true, of those written": "> 0.75",
        "most that a head reads of the letter before": "< 0.5",
        "right name without the head of layer 1 it needs most": "< 1",
    },
    "peeking": {"loss below half of the least": "> 0.5"},
}
