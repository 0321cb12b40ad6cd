"""The figures of the papers, as data."""
