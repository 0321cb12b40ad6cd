"""One file per verb: the public functions that the command line calls, with the same names and defaults."""
