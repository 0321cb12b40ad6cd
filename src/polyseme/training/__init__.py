"""Training: the loop, what stands beside it, and the folder of a run."""
