"""Users' files, in and out: rows of text to read, vectors to write, and nothing half-written."""
