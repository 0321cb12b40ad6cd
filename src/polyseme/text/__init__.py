"""Text to words, words to pieces, pieces to windows."""
