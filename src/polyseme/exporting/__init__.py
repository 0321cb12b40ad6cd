"""Models as files that run without polyseme and torch."""
