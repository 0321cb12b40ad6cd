"""Encoders: batch → states, one file per kind of computation. `kinds.py` lists them."""
