"""`polyseme convert`."""

from __future__ import annotations

from typing import Any

import polyseme
from polyseme.cli.printing import print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import Bar, print_cost
from polyseme.verb_options.model_options import ConvertOptions


@command_of(ConvertOptions)
def command(output: str, **settings: Any) -> None:
    """Convert a model to the current layout, or to that of another library.

    By default OUTPUT is a folder with config.json, model.safetensors and tokenizer.json, which transformers can load.
    With --to sentence-transformers it also has modules.json and a pooling, so that SentenceTransformer("OUTPUT")
    loads it and gives the vectors of embed --per text. With --dtype int8 matrices are stored in int8, and only
    polyseme can load them. With --to word2vec, OUTPUT is a file for gensim with one vector per word type of --in
    INPUT, the mean of its uses; with --to arpa an n-gram model for KenLM; with --to fastai an AWD-LSTM, with its
    vocabulary in NAME_itos.pkl; with --to onnx a graph that computes word vectors or a task model's scores, checked
    by onnxruntime, with NAME.tokenizer.json.

    \b
    Examples:
      polyseme convert -m old/bert -o new/bert
      polyseme convert -m old/bert -o new/bert --store bf16 --shard-size 1000000000
      polyseme convert -m models/stars -o models/stars8 --dtype int8
      polyseme convert -m models/mine --to sentence-transformers -o models/sentences
      polyseme convert -m models/kn5 --to arpa -o kn5.arpa
      polyseme convert -m models/awd --to fastai -o awd.pth
      polyseme convert -m models/stars --to onnx -o stars.onnx
      polyseme convert -m models/mine --to onnx --layer mean:-4:-1 --pool first -o words.onnx
      polyseme convert --to word2vec --in texts/ -o words.vec
      polyseme convert -m models/mine --to word2vec --in reviews.csv --field review --min-count 20 -o words.bin
    """
    with Bar("converting the model", "embedding") as bar:
        cost = polyseme.convert_model(output=output, **settings, progress=bar)
    if cost is None:
        print_text(f"{output}: saved", err=True)
    else:
        print_cost(cost.line(), output)
