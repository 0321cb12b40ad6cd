"""`polyseme pretrain`."""

from __future__ import annotations

import time
from typing import Any

import polyseme
from polyseme.cli.printing import print_text
from polyseme.cli.record_options import command_of
from polyseme.cli.terminal import PretrainLine
from polyseme.verb_options.pretraining_options import PretrainOptions


@command_of(PretrainOptions)
def command(sources: tuple[str, ...], **settings: Any) -> None:
    """Pretrain a model on [TEXTS]...: files, folders or patterns, or a folder that `polyseme corpus` built.

    One command trains a tokenizer, builds a corpus (both in the run's folder), trains the model with checkpoints, and
    saves it as a folder that -m and other libraries load. The same command, or --resume, resumes an interrupted run.
    Batch size, sequence length, learning rate, schedule and dropout are fitted to the budget, the device and the
    text, and printed; options, or --as-published, override them. For several GPUs or machines: torchrun … -m polyseme
    pretrain ….

    \b
    Examples:
      polyseme pretrain texts/ --budget 10min -o models/mine
      polyseme pretrain texts/*.txt.xz --recipe gpt-mini --budget 10min -o models/decoder
      polyseme pretrain texts/ --recipe gpt-tiny --budget 5min --device cpu -o models/tiny
      polyseme pretrain texts/ --recipe electra-small --as-published --dry-run
      polyseme pretrain --source train.en --target train.de --recipe transformer-tiny --budget 4min -o models/ende
      polyseme pretrain --resume models/mine --stop-after 9min
      torchrun --nproc-per-node 8 -m polyseme pretrain corpus/ --recipe roberta-base --budget 1e18flops -o models/big
    """
    started = time.perf_counter()  # before torch is imported
    with PretrainLine() as line:
        result = polyseme.pretrain(
            sources or None, **settings, on_report=line.report, progress=line.bar, started=started
        )
    for text in result.lines():
        print_text(text, err=True)
