"""Claims of the literature, each in a file of its own: who made it, the rule that decides, and the smallest run."""
