"""`polyseme pretrain`."""

from __future__ import annotations

from typing import Any

import click

import polyseme
from polyseme.cli import options
from polyseme.cli.progress import TrainingLine


@click.command()
@click.argument("sources", metavar="[TEXTS]...", nargs=-1)
@options.output("The folder of the run; its model/ is the model.", required=False)
@options.sides
@click.option("--resume", metavar="RUN", help="Go on with the run in this folder, as it was set.")
@click.option("--recipe", default="bert-tiny", show_default=True, metavar="NAME", help="See: polyseme recipes.")
@click.option(
    "--budget", default="20min", show_default=True, metavar="AMOUNT", help="20min, 3e16flops, 1e9pieces, 1000steps."
)
@click.option("-m", "--model", metavar="MODEL", help="Train this model further, instead of starting afresh.")
@click.option("--tokenizer", metavar="KIND", help="wordpiece, bpe, byte-bpe, unigram, words, characters, or a folder.")
@click.option("--vocab-size", type=int, metavar="N", help="Pieces of a tokenizer trained here.  [the recipe's]")
@options.field
@click.option("--documents", metavar="UNIT", help="What a document is: blank-lines, file, line or record.")
@click.option("--held-out", default=0.01, show_default=True, metavar="SHARE", help="Documents that are not trained on.")
@click.option("--batch-size", type=int, metavar="N", help="Rows of a step.  [the recipe's]")
@click.option("--length", type=int, metavar="N", help="Pieces of a row.  [the recipe's]")
@click.option("--learning-rate", type=float, metavar="RATE", help="The highest learning rate.  [the recipe's]")
@click.option("--optimizer", metavar="NAME", help="adamw, adamw-uncorrected, muon, adagrad, sgd.  [the recipe's]")
@click.option(
    "--schedule",
    metavar="NAME",
    help="constant, linear, cosine, noam, slanted-triangular, warmup-stable-decay.  [the recipe's]",
)
@click.option("--warmup", type=float, metavar="SHARE", help="Share of the steps (or steps, from 1 on) of warmup.")
@click.option(
    "--micro-batch-size", type=int, metavar="N", help="Rows that run at once; a step may take several passes."
)
@click.option("--mask-documents", is_flag=True, help="Hide documents that share a row from each other.")
@click.option("--reset-positions", is_flag=True, help="Count positions anew with each document.")
@click.option("--set", "shape", multiple=True, metavar="NAME=VALUE", help="Change the encoder's config: n_layers=4.")
@click.option(
    "--objective", multiple=True, metavar="NAME=VALUE", help="Change the objective: unit=word, mask_rate=0.3."
)
@options.device
@click.option("--dtype", default="auto", show_default=True, metavar="DTYPE", help="auto, fp32, bf16, fp64.")
@click.option("--compile/--no-compile", default=None, help="Whether torch compiles the networks.  [on a GPU]")
@click.option("--parallel", default="ddp", show_default=True, metavar="HOW", help="ddp or fsdp, under torchrun.")
@click.option("--seed", default=0, show_default=True, metavar="N", help="What everything by chance is drawn from.")
@click.option("--log-every", default=10, show_default=True, metavar="N", help="Steps between lines of log.jsonl.")
@click.option("--evaluate-every", type=int, metavar="N", help="Steps between evaluations.  [ten in all]")
@click.option("--checkpoint-every", type=int, metavar="N", help="Steps between checkpoints.  [ten in all]")
@click.option("--keep", default=2, show_default=True, metavar="N", help="Checkpoints that are kept.")
@click.option("--shard-size", type=int, metavar="BYTES", help="The largest file of weights.")
@click.option("--tensorboard", is_flag=True, help="Write events for TensorBoard too.")
@click.option("--workers", default=1, show_default=True, metavar="N", help="Threads that make rows ahead of steps.")
@click.option(
    "--rates", multiple=True, metavar="NAME=VALUE", help="What energy costs: kg_per_kwh=0.05, price_per_device_hour=2."
)
@click.option("--dry-run", is_flag=True, help="Two steps of every stage; says what the whole would take.")
@click.option("--force", is_flag=True, help="Replace what is there under the name of the output.")
def command(sources: tuple[str, ...], **settings: Any) -> None:
    """Pretrain a model on [TEXTS]...: files, folders or patterns, or a folder that `polyseme corpus` built.

    Everything is done on the way: a tokenizer is trained, the text becomes a corpus (both kept in the run's folder),
    the model is trained, with checkpoints, and saved as a folder that -m takes, and other libraries load. Stopped? The
    same command goes on, and so does --resume. On several GPUs or machines: torchrun … -m polyseme pretrain ….

    \b
    Examples:
      polyseme pretrain texts/*.txt.xz --recipe electra-small --budget 20min -o models/mine
      polyseme pretrain texts/ --recipe bert-tiny --budget 2000steps --device cpu -o models/tiny
      polyseme pretrain texts/ --recipe bert-base --budget 1e9pieces --dry-run
      polyseme pretrain --source train.en --target train.de --recipe transformer-tiny --budget 4min -o models/ende
      polyseme pretrain --resume models/mine
      torchrun --nproc-per-node 8 -m polyseme pretrain corpus/ --recipe roberta-base --budget 1e18flops -o models/big
    """
    for name, option in (("shape", "--set"), ("objective", "--objective"), ("rates", "--rates")):
        settings[name] = options.pairs(settings[name], option)
    settings |= options.named_sides(settings)
    with TrainingLine() as line:
        result = polyseme.pretrain(
            sources or None,
            **settings,
            on_report=line.report,
            progress=line.progress,
        )
    for text in result.lines():
        click.echo(text, err=True)
