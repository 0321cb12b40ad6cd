"""Metrics and evaluation reports."""
