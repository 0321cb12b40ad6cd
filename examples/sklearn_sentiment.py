"""Is a sentence positive or negative? A scikit-learn pipeline over word vectors, and which layer works best.

Prints the accuracy on held-out sentences of the most frequent label, of word counts (tf-idf), and of the mean of each
sentence's word vectors from a frozen model. The layer is chosen by cross-validation on the training sentences.

    python examples/sklearn_sentiment.py path/to/sst2          # train.tsv.xz and dev.tsv: sentence, tab, label
"""

from __future__ import annotations

import argparse
import lzma
import random
from pathlib import Path

from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polyseme.sklearn import ContextualVectorizer

LAYERS = (0, "mean:0:-1", -1)


def sentences(path: Path, count: int) -> tuple[list[str], list[str]]:
    """A sample of a file's sentences, and their labels."""
    content = path.read_bytes()
    lines = (lzma.decompress(content) if path.suffix == ".xz" else content).decode().splitlines()[1:]
    rows = [line.rpartition("\t") for line in random.Random(0).sample(lines, min(count, len(lines)))]
    return [sentence for sentence, _, _ in rows], [label for _, _, label in rows]


def compare(data: Path, model: str | None, n_train: int, n_test: int) -> tuple[dict[str, float], str]:
    """The accuracy of each classifier on held-out sentences, and the chosen layer."""
    train, test = sentences(data / "train.tsv.xz", n_train), sentences(data / "dev.tsv", n_test)
    vectors = make_pipeline(ContextualVectorizer(model), StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    classifiers = {
        "the most frequent label": DummyClassifier(),
        "word counts": make_pipeline(TfidfVectorizer(), LogisticRegression()),
        "word vectors": GridSearchCV(vectors, {"contextualvectorizer__layer": LAYERS}, cv=3),
    }
    accuracies = {name: float(each.fit(*train).score(*test)) for name, each in classifiers.items()}
    return accuracies, str(classifiers["word vectors"].best_params_["contextualvectorizer__layer"])


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of SST-2")
    parser.add_argument("-m", "--model", help="a model folder (default: MiniLM, from the extra 'demo')")
    parser.add_argument("--train", type=int, default=800, help="number of training sentences")
    parser.add_argument("--test", type=int, default=872, help="number of test sentences")
    settings = parser.parse_args()

    accuracies, layer = compare(settings.data, settings.model, settings.train, settings.test)
    for name, accuracy in accuracies.items():
        print(f"{name:<24}{accuracy:.3f}")
    print(f"The chosen layer is {layer}.")


if __name__ == "__main__":
    main()
