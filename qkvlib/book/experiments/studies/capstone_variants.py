"""What becomes of chapter 8's model when one thing is changed, seed by seed."""

from functools import partial

from qkvlib.book.experiments import storyteller as st

SEEDS = range(5)

OPTIONS = {
    "as it is": {},
    "layers=1": {"layers": 1},
    "num_heads=1": {"num_heads": 1},
    "rotate=None": {"rotate": None},
    "lr=0.01": {"lr": 0.01},
    "steps=100": {"steps": 100},
}


def changed_figures(seed, options):
    told = st.tell(seed, **options)
    of_read, of_unread = st.places(told.read), st.places(told.unread)
    figures = {
        "loss after 100 steps": told.losses[90:100].mean(),
        "right name, stories read": st.right(told.model, told.read, of_read.asks),
        "right deed, stories read": st.right(told.model, told.read, of_read.deed),
    }
    if "lr" not in options:  # there rounding decides about a stranger
        strangers = st.right(told.model, told.unread, of_unread.asks)
        figures["right name, two who never met"] = strangers
    return figures


EXPERIMENTS = {name: partial(changed_figures, options=each) for name, each in OPTIONS.items()}

BOUNDS = {name: {"right deed, stories read": "> 0.95"} for name in OPTIONS}
BOUNDS["rotate=None"] |= {"loss after 100 steps": "> 0.35"}
BOUNDS["steps=100"] |= {"right name, stories read": "< 0.5"}
