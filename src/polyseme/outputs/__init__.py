"""Outputs: layers over states that predict pieces or a pretraining label."""
