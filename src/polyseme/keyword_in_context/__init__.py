"""Concordances: every match of a word, a lemma or a pattern, in its context."""
