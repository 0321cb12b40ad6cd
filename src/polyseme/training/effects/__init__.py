"""What happens beside the loop, a small object each: log, evaluate, watch, keep, tell."""
