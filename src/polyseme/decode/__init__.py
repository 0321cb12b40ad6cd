"""Language models at work: writing on, and saying how likely a text is."""
