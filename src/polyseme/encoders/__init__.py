"""Encoders: batch → states, a file a kind of computation. `kinds.py` lists them."""
