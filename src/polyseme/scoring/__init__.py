"""How likely a model finds a text, piece by piece and word by word."""
