"""Estimators for scikit-learn: vectors of texts as features, and classifiers and taggers over any encoder.

Models that are given by name or path are loaded once in a process and shared by all estimators in it, so that a search
over layers and pools loads one model. A pickled estimator holds what it learned: nothing (`ContextualVectorizer`), a
head, or a whole tuned model.
"""

from __future__ import annotations

from polyseme.sklearn.classifier import ContextualClassifier
from polyseme.sklearn.tagger import ContextualTagger
from polyseme.sklearn.vectorizer import ContextualVectorizer

__all__ = ["ContextualClassifier", "ContextualTagger", "ContextualVectorizer"]
