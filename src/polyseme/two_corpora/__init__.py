"""The uses of words in two corpora: how much they differ, and whether by more than chance."""
