"""Is a sentence praise or blame? A scikit-learn pipeline over word vectors, and which layer serves it best.

Prints the accuracy on held-out sentences of guessing the commoner label, of counted words (tf-idf), and of the mean of
each sentence's word vectors, from a frozen model; the layer is chosen by cross-validation on the training sentences.

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
    """The accuracy of each way on held-out sentences, and the layer that was chosen."""
    train, test = sentences(data / "train.tsv.xz", n_train), sentences(data / "dev.tsv", n_test)
    vectors = make_pipeline(ContextualVectorizer(model), StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    ways = {
        "the commoner label": DummyClassifier(),
        "counted words": make_pipeline(TfidfVectorizer(), LogisticRegression()),
        "word vectors": GridSearchCV(vectors, {"contextualvectorizer__layer": LAYERS}, cv=3),
    }
    accuracies = {name: float(way.fit(*train).score(*test)) for name, way in ways.items()}
    return accuracies, str(ways["word vectors"].best_params_["contextualvectorizer__layer"])


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of SST-2")
    parser.add_argument("-m", "--model", help="a model folder (default: MiniLM, of the extra 'demo')")
    parser.add_argument("--train", type=int, default=800, help="how many sentences to learn from")
    parser.add_argument("--test", type=int, default=872, help="how many to be judged by")
    settings = parser.parse_args()

    accuracies, layer = compare(settings.data, settings.model, settings.train, settings.test)
    for name, accuracy in accuracies.items():
        print(f"{name:<20}{accuracy:.3f}")
    print(f"The layer chosen is {layer}.")


if __name__ == "__main__":
    main()
