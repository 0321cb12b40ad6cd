"""Options that `score` and `evaluate` share."""

from __future__ import annotations

import click

hide = click.option(
    "--hide",
    default="word",
    show_default=True,
    metavar="UNIT",
    help="What a masked model does not see of what it guesses: the whole word, the piece, or left-to-right, "
    "the piece and those after it in its word.",
)
order = click.option(
    "--order",
    metavar="ORDER",
    help="left-to-right, right-to-left or both for a two-way model (ELMo); for one that knows any order (XLNet) also "
    "places of pieces, as in 3,2,4,1.  [default: left-to-right]",
)
stride = click.option(
    "--stride",
    type=int,
    metavar="N",
    help="Pieces by which the window of a causal model moves on in a text too long for it.  [default: half a window]",
)
