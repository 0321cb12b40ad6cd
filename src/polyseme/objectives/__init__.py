"""Objectives: a corruption of rows and a loss, a file each."""
