"""Benchmarks: readers of their files, metrics, and reports."""
