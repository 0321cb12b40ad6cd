"""How weights are drawn anew in tests."""

SPREAD = 0.3
"""At the usual 0.02 attention is so flat that a wrong mask hardly shows."""
