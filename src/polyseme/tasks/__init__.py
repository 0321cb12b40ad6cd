"""Kinds of task over users' own data."""
