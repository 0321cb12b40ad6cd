"""Runs over a grid of settings and seeds: what is run, side by side, and the results of all."""
