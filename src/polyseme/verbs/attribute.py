"""`attribute`: what each word of a text adds to a task model's score."""

from __future__ import annotations

from collections.abc import Sequence

from polyseme.analysis.attribution_findings import AttributionFindings, attribute_items
from polyseme.analysis.findings import check_findings_output, quoted
from polyseme.api import Model
from polyseme.convert.hub import find_model
from polyseme.errors import InputError, ModelError
from polyseme.files.in_memory import Inputs, inputs_of, names_of
from polyseme.options import flat
from polyseme.result_tables import counted
from polyseme.tasks.items import Item
from polyseme.tasks.kinds import KINDS
from polyseme.transfer.evaluate_task import has_head
from polyseme.transfer.predict_columns import Columns
from polyseme.transfer.predict_files import Predictor
from polyseme.transfer.predict_inputs import read_items
from polyseme.transfer.task_model import TaskModel
from polyseme.verb_options.attribute_options import AttributeOptions
from polyseme.verbs.predict import load_single_predictor


@flat(AttributeOptions)
def attribute(options: AttributeOptions) -> AttributionFindings:
    """Compute what each word adds to a task model's score of a label, by integrated gradients or gradient × input.

    >>> polyseme.attribute("a dull film", model="models/stars").records()       # doctest: +SKIP
    """
    inputs = None if options.source is None else inputs_of(options.source)
    check_findings_output(options.output, force=options.force, inputs=() if inputs is None else names_of(inputs))
    predictor, name = _load(options)
    model = predictor.model
    files = [] if inputs is None else [str(name) for name in names_of(inputs)]
    if inputs is None:
        inputs = _texts(model, options.texts)
    items = read_items(predictor, inputs, columns=Columns(), reading={})
    if not items:
        raise InputError("The input has no text.")
    names = ("label", "word", "occurrence", "method", "steps", "baseline", "progress")
    settings = {each: getattr(options, each) for each in names}
    findings = attribute_items(model, items, name=name, data=_describe(items, files), **settings)
    if options.output is not None:
        findings.save(options.output, force=options.force)
    return findings


def _describe(items: Sequence[Item], files: Sequence[str]) -> str:
    several = len(items) > 1 or bool(files)
    texts = [each for each in (items[0].text, items[0].second) if each is not None]
    named = counted(len(items), "text") if several else " and ".join(map(quoted, texts))
    return f"{named} of {', '.join(files)}" if files else named


def _load(options: AttributeOptions) -> tuple[Predictor, str]:
    """The task model, and the name of its folder."""
    model = options.model
    path = model.path if isinstance(model, Model) else str(find_model(str(model)))
    if not path or not has_head(path):
        named = model if isinstance(model, str) else path or "The model"
        raise ModelError(
            f"{named} has no task head, so that there is no score to attribute. Train one: `polyseme finetune classify "
            "--train train.csv -o models/stars`. For the predictions of a pretrained model, use `polyseme lens`."
        )
    predictor = load_single_predictor(model if isinstance(model, Model) else path, options.device)
    predictor.model.eval()
    return predictor, path


def _texts(model: TaskModel, texts: str | Sequence[str]) -> Inputs:
    """Texts as the model reads them: for a model of pairs, both of one."""
    several = [texts] if isinstance(texts, str) else list(texts)
    if KINDS[model.config.kind].second is None:
        return inputs_of(several)
    if len(several) != 2:
        raise InputError(
            f"A model for task {model.config.kind!r} reads two texts together. Name both. Got {len(several)} instead."
        )
    return inputs_of([tuple(several)])
