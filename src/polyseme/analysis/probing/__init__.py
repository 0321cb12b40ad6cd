"""Probes: what classifiers can read off a model's layers, beside what they could learn without the model."""
