"""Export one checkpoint: trace, quantise, check, write. Each step may refuse.

Knows nothing of the command line; a callback reports progress.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import onnx

from export.checks.agreement import check_agreement, measure_agreement, sample_texts
from export.checks.distributions import LARGEST_CHANGES, check_changes
from export.checks.parity import GraphRunner, check_parity, outputs_of_texts, pad
from export.checks.provider_support import device_of
from export.checks.retrieval import measure_retrieval
from export.checks.traced_reading import check_reader
from export.errors import ExportError
from export.examples import example_fields, general_examples
from export.graphs.graph import check_fused, fused_ops, trace
from export.graphs.traced.rows import trace_reader
from export.graphs.widened import widened
from export.precision.samples import MAX_TOKENS, SampleRows, sample_rows
from export.precision.static import quantize_static
from export.recipes.embedder_ranges import embedder_use
from export.settings import (
    AUTO,
    MAX_ABS_ERROR,
    ExportSettings,
    GraphKind,
    HeldOut,
    OnStep,
    Operator,
    versions,
)
from export.writer import Built, BuiltGraphs, ExportedModel, build_graphs
from models.checkpoints.checkpoint import Checkpoint
from models.data.datasets import Example
from models.networks.decoder_readers import DecoderReader
from models.networks.traced_readers import TracedReader
from service.contract.manifest import Manifest, Precision, Variant
from service.contract.precision import HALF

MIN_MEAN_COSINE = 0.995
# Of the rows of decoders, whose contexts of 32,768 and more would take 8 rows * 16 heads * S^2
# scores; at this length they take 2.1 GB.
MAX_CHECKED_TOKENS = 2_048
# The largest effect of neighbours on a row in a precision that was not requested.
MAX_NEIGHBOUR_EFFECT = 0.01
# Which operator measured faster on a CPU, decision 0028, and which keeps flash attention on CUDA,
# decision 0032.
DEFAULT_OPERATOR: dict[str, Operator] = {
    "fp32": "Attention",
    "fp16": "Attention",
    "bf16": "Attention",
    "int8": "Attention",
}


def export_text_network(
    checkpoint: Checkpoint, settings: ExportSettings, held_out: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graphs of a network that reads texts, and its manifest.

    Accuracy is measured on labelled data, where there are any.
    """
    has_attention = checkpoint.text_network.num_attentions > 0
    kinds = settings.graphs(AUTO, "padded" if has_attention else "")
    if kinds[0].precision not in MAX_ABS_ERROR:
        raise ExportError(
            f"precision is {kinds[0].precision}, an encoder's is one of {', '.join(MAX_ABS_ERROR)}"
        )
    _check_labels(checkpoint, held_out.labelled)
    encoder = _Encoder(checkpoint, settings, held_out.labelled, on_step)
    graphs = build_graphs(kinds, encoder.build, check_cost)
    manifest = _manifest(checkpoint, settings, graphs)
    if manifest.task == "embedding":
        on_step("measuring the ranges of values")
        manifest = replace(manifest, embedder=embedder_use(checkpoint, settings.calibration))
    return ExportedModel(graphs.main.graph, checkpoint.tokenizer, manifest, graphs.others)


class _Encoder:
    """One network in any precision; what several of them need is computed once."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: ExportSettings,
        labelled: Sequence[Example],
        on_step: OnStep,
    ) -> None:
        self._checkpoint = checkpoint
        self._settings = settings
        self._labelled = labelled
        self._on_step = on_step
        network = checkpoint.text_network
        make: Callable[..., onnx.ModelProto] = (
            _traced_reader if isinstance(network, TracedReader) else trace
        )
        self._samples: Callable[[], SampleRows] = cache(
            lambda: sample_rows(
                checkpoint.tokenizer,
                settings.calibration,
                checkpoint.max_tokens,
                network.as_sample,
            )
        )
        self._trace = cache(
            lambda operator, precision, is_padded: make(
                network, operator, precision=precision, is_padded=is_padded
            )
        )
        self._float_accuracy = cache(
            lambda operator: _accuracy(checkpoint, self._trace(operator, "fp32", False), labelled)
        )

    def build(self, kind: GraphKind) -> Built:
        """A graph that computes what the network does, or `ExportError`."""
        settings, network = self._settings, self._checkpoint.text_network
        precision, is_padded = kind.precision, kind.layout == "padded"
        chosen = settings.attention
        operator = DEFAULT_OPERATOR[precision] if chosen == "auto" else chosen
        self._on_step(f"{kind.name}: tracing the graph")
        graph = self._trace(operator, precision if precision in HALF else "fp32", is_padded)
        if precision == "int8":
            self._on_step("int8: looking for the scales of activations")
            pad_id = network.pad_token_id
            rows = self._samples().calibration
            graph = quantize_static(graph, (pad([row], pad_id) for row in rows))
            check_fused(graph, operator, network.num_attentions)
        device = device_of(graph, kind, settings)
        checked = widened(graph) if precision == "bf16" else graph
        self._on_step(f"{kind.name}: comparing with PyTorch")
        parity = self._check_parity(precision, checked)
        if precision == "int8":
            parity |= self._agreement(graph)
        accuracy: dict[str, float] = {}
        if self._labelled:
            self._on_step(f"{kind.name}: measuring accuracy on {len(self._labelled)} texts")
            expected = self._float_accuracy(operator)
            is_float = precision == "fp32"
            measured = (
                expected if is_float else _accuracy(self._checkpoint, checked, self._labelled)
            )
            accuracy = {"texts": len(self._labelled), "float": expected, "exported": measured}
            _check_accuracy(accuracy, settings.max_accuracy_drop)
        variant = Variant(
            precision, fused_ops(graph), parity, accuracy, device=device, layout=kind.layout
        )
        return Built(graph, variant)

    def _agreement(self, graph: onnx.ModelProto) -> dict[str, float]:
        """Agreement of answers to texts, and how far their numbers move: what int8 costs.

        With labelled data accuracy stands for the agreement; the numbers are compared all the same.
        """
        checkpoint, network = self._checkpoint, self._checkpoint.text_network
        texts = self._samples().compared
        max_tokens = min(checkpoint.max_tokens, MAX_TOKENS)
        samples = sample_texts(checkpoint.task, checkpoint.tokenizer, texts, max_tokens, network)
        self._on_step(f"int8: comparing answers to {len(samples)} texts")
        run = GraphRunner(graph)
        ids = [sample.ids for sample in samples]
        agreement = measure_agreement(checkpoint.task, checkpoint.labels, samples, network, run)
        if self._labelled:
            kept = ("texts_compared", *LARGEST_CHANGES)
            return {name: agreement[name] for name in kept if name in agreement}
        return {**agreement, **measure_retrieval(ids, network, run)}

    def _check_parity(self, precision: Precision, graph: onnx.ModelProto) -> dict[str, float]:
        """On any tokens, or in int8, which is made for some, on texts.

        The figures of the first output have no name before them, those of others their output's.
        """
        network, limit = self._checkpoint.text_network, MAX_ABS_ERROR[precision]
        rows = self._samples().checked if precision == "int8" else None
        most = self._checkpoint.max_tokens
        if isinstance(network, DecoderReader | TracedReader):
            most = min(most, MAX_CHECKED_TOKENS)
        parities = check_parity(network, graph, most, limit, rows)
        is_bounded = precision in ("int8", "bf16") and not self._labelled
        figures: dict[str, float] = {}
        for name, parity in parities.items():
            if is_bounded and not parity.mean_cosine >= MIN_MEAN_COSINE:
                raise ExportError(
                    f"the mean cosine of {precision}'s {name} with PyTorch's is "
                    f"{parity.mean_cosine:.4f}, the limit is {MIN_MEAN_COSINE}"
                    + (": calibrate on texts like yours, see --calibration" * (precision == "int8"))
                )
            prefix = "" if name == network.output_name else f"{name}."
            figures |= {f"{prefix}{figure}": value for figure, value in parity.to_dict().items()}
        return figures


def _traced_reader(
    reader: TracedReader, operator: Operator, *, precision: Precision, is_padded: bool
) -> onnx.ModelProto:
    """The graph of a network of transformers; in float32 it is compared with whole rows."""
    graph = trace_reader(reader, operator, precision=precision, is_padded=is_padded)
    if precision not in HALF:
        check_reader(reader, graph)
    return graph


def check_cost(variant: Variant) -> None:
    """Raise `ExportError` for an unrequested precision that is too inaccurate."""
    for name, effect in variant.parity.items():
        if name.endswith("max_neighbour_effect") and not effect <= MAX_NEIGHBOUR_EFFECT:
            raise ExportError(
                f"a row's neighbours move its output by {effect}, the limit is "
                f"{MAX_NEIGHBOUR_EFFECT}"
            )
    check_agreement(variant.precision, variant.parity)
    check_changes(variant.precision, variant.parity)


def _check_labels(checkpoint: Checkpoint, labelled: Sequence[Example]) -> None:
    function = checkpoint.text_network.score_function
    if labelled and function not in ("", "softmax"):
        raise ExportError(
            f"labelled data has one label for each text, and the model scores each of its labels "
            f"by {function}: leave it out, and int8 is measured on texts without labels"
        )
    unknown = {example.label for example in labelled} - set(checkpoint.labels)
    if unknown:
        raise ExportError(
            f"labelled data has labels {sorted(unknown)}, the model knows {checkpoint.labels}"
        )


def _accuracy(checkpoint: Checkpoint, model: onnx.ModelProto, labelled: Sequence[Example]) -> float:
    """Share of texts whose best label is the given one."""
    labels = np.array([checkpoint.labels.index(example.label) for example in labelled])
    outputs = outputs_of_texts(
        GraphRunner(model),
        checkpoint.tokenizer,
        [example.text_or_pair for example in labelled],
        checkpoint.max_tokens,
        checkpoint.text_network.pad_token_id,
    )
    return round(float((np.concatenate(list(outputs)).argmax(axis=1) == labels).mean()), 5)


def _check_accuracy(accuracy: dict[str, float], max_drop: float) -> None:
    drop = accuracy["float"] - accuracy["exported"]
    if drop > max_drop:
        raise ExportError(
            f"accuracy drops by {drop:.4f}, from {accuracy['float']} to {accuracy['exported']}; "
            f"the limit is {max_drop}"
        )


def _manifest(checkpoint: Checkpoint, settings: ExportSettings, graphs: BuiltGraphs) -> Manifest:
    network = checkpoint.text_network
    assert checkpoint.task != "sequence-to-sequence", "others have their own exporter"
    return Manifest(
        task=checkpoint.task,
        max_tokens=checkpoint.max_tokens,
        pad_token_id=network.pad_token_id,
        vocab_size=checkpoint.num_rows_if_fewer,
        labels=checkpoint.labels,
        score_function=network.score_function,
        pair_template=network.pair_template,
        network=network.served_name,
        embedding_size=network.embedding_size,
        num_layers=checkpoint.config.num_layers if checkpoint.task == "features" else 0,
        pooling=network.pooling_description,
        origin=checkpoint.origin,
        versions=versions(),
        mask_token_id=network.mask_token_id,
        **network.embedder_fields,
        **example_fields(settings, general_examples(checkpoint)),
        **graphs.manifest_fields(),
    )
