"""Heads: layers over word features that predict a task's labels."""
