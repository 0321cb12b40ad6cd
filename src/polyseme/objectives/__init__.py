"""Objectives: a corruption of rows and a loss, one file each."""
