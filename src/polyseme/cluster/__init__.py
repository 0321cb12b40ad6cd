"""A job's chunks on the workers of a Ray cluster."""
