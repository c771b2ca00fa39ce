"""Export a checkpoint with its attention made visible. Each step may refuse.

    input_ids        [B, S]            int64, right-padded; as are attention_mask, token_type_ids
    target_ids       [B, T]            int64: what an encoder-decoder wrote, its end included
    attentions       [B, L, H, T, S]   float32; of a network without target T is S
    and the network's own output, by its own name: the same as without this

Of each matrix's row the weights sum to one. Nothing is fused: the operators that are keep their
weights to themselves.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.checks.provider_support import device_of
from export.errors import ExportError
from export.examples import example_fields, rows_of_symbols
from export.general_examples import GENERAL, of_texts
from export.graphs.attention import (
    OUTPUT,
    _num_matrices,
    longest_text,
    output_name,
    trace_attention,
)
from export.graphs.graph import open_session, trace
from export.settings import (
    MAX_ABS_ERROR,
    ExportSettings,
    GraphKind,
    HeldOut,
    OnStep,
    check_fp32,
    versions,
)
from export.writer import ExportedModel
from models.checkpoints.checkpoint import Checkpoint
from models.networks.attending import IDS, MASK, TARGET, TYPES, Attending, attending, shifted_right
from models.networks.heads import TextNetwork
from models.networks.recurrent import RecurrentSeq2Seq
from models.networks.transformer import Transformer
from service.contract.manifest import Manifest

NUM_ROWS = 4  # that are compared: of the longest to the shortest
Arrays = dict[str, np.ndarray]


def export_attention(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graph with attention weights, or `SettingError` for a network without attention."""
    check_fp32(settings, "that of attention made visible")
    shown = attending(checkpoint.model)
    on_step("tracing the graph")
    graph = trace_attention(shown, output_name(checkpoint))
    device = device_of(graph, GraphKind("fp32"), settings)
    on_step("comparing with PyTorch")
    num_layers, num_heads = _num_matrices(shown)
    max_tokens = min(checkpoint.max_tokens, longest_text(num_layers, num_heads))
    parity = check_attention(checkpoint, shown, graph, max_tokens)
    manifest = Manifest(
        task="attention",
        precision="fp32",
        device=device,
        max_tokens=max_tokens,
        pad_token_id=0,  # nothing is padded: a text is computed alone
        network="encoder-decoder" if shown.has_target else "",
        num_layers=num_layers,
        num_heads=num_heads,
        **(_with_outputs if shown.has_target else _of_texts)(checkpoint, settings),
        origin=checkpoint.origin,
        parity={name: float(f"{value:.2e}") for name, value in parity.items()},
        versions=versions(),
    )
    return ExportedModel(graph, checkpoint.tokenizer, manifest)


def _of_texts(_: Checkpoint, settings: ExportSettings) -> dict[str, Any]:
    return example_fields(settings, of_texts(GENERAL))


def _with_outputs(checkpoint: Checkpoint, settings: ExportSettings) -> dict[str, Any]:
    """Sources, each with what the network writes of it where no other output is named."""
    network, tokenizer = checkpoint.model, checkpoint.tokenizer
    is_of_symbols = isinstance(network, RecurrentSeq2Seq)
    assert isinstance(network, RecurrentSeq2Seq | Transformer), "these read sources"
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    general = rows_of_symbols(names, network.config.max_positions) if is_of_symbols else ()

    def output_of(source: str) -> str:
        ids = torch.tensor([tokenizer.encode(source).ids])
        with torch.inference_mode():
            written, _ = network.greedy(ids, torch.ones_like(ids), checkpoint.max_tokens)
        special = (network.config.pad_token_id, network.config.end_token_id)
        kept = [int(token_id) for token_id in written[0] if token_id not in special]
        if is_of_symbols:
            return " ".join(tokenizer.id_to_token(token_id) or "" for token_id in kept)
        return str(tokenizer.decode(kept))

    fields = example_fields(settings, general)
    examples = (
        each if each.text_pair else replace(each, text_pair=output_of(each.text))
        for each in fields["examples"]
    )
    return fields | {"examples": tuple(examples)}


def check_attention(
    checkpoint: Checkpoint, shown: Attending, graph: onnx.ModelProto, max_tokens: int
) -> dict[str, float]:
    """The largest differences, or `ExportError` where one is above what is allowed.

    Of the weights: to PyTorch's, and of their rows' sums to one. Of the output: to that of the
    network untouched, and where it reads whole texts, to that of its fused graph.
    """
    own_output = output_name(checkpoint)
    run = _runner(graph)
    plain = checkpoint.model.eval()
    fused = None
    if isinstance(plain, TextNetwork):
        fused = _runner(trace(plain, "Attention"))
    figures = dict.fromkeys(("attention", "row_sum", "output"), 0.0)
    if fused is not None:
        figures["fused_output"] = 0.0
    for inputs in _inputs(shown, plain, checkpoint.config.vocab_size, max_tokens):
        by_graph = run(inputs)
        with torch.inference_mode():
            weights, _ = shown(*map(torch.from_numpy, inputs.values()))
            by_network = _plain_output(plain, inputs).numpy()
        differences = {
            "attention": by_graph[OUTPUT] - weights.numpy(),
            "row_sum": by_graph[OUTPUT].sum(axis=-1) - 1.0,
            "output": by_graph[own_output] - by_network,
        }
        if fused is not None:
            differences["fused_output"] = by_graph[own_output] - fused(inputs)[own_output]
        for name, difference in differences.items():
            largest = float(np.abs(difference).max(initial=0.0))  # of no mask there are no logits
            figures[name] = max(figures[name], largest)
    return checked(figures)


def checked(figures: Mapping[str, float]) -> dict[str, float]:
    """The largest differences as the manifest names them.

    Raises `ExportError` where one is above what is allowed.
    """
    for name, value in figures.items():
        if not value <= MAX_ABS_ERROR["fp32"]:  # also where it is not a number
            raise ExportError(
                f"{name.replace('_', ' ')} is off by up to {value:.2e}, the limit is "
                f"{MAX_ABS_ERROR['fp32']:.0e}"
            )
    return {f"max_{name}_error": value for name, value in figures.items()}


def _runner(graph: onnx.ModelProto) -> Callable[[Arrays], Arrays]:
    session = open_session(graph)
    inputs, outputs = (
        [spec.name for spec in side]
        for side in (session.signature.inputs, session.signature.outputs)
    )

    def run(batch: Arrays) -> Arrays:
        values = session.run({name: batch[name] for name in inputs}, outputs)
        return dict(zip(outputs, values, strict=True))

    return run


def _plain_output(network: nn.Module, inputs: Arrays) -> Tensor:
    """The outputs of the original network, which reads its own earlier output."""
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    if TARGET in tensors:
        start: int = network.config.start_token_id  # type: ignore[union-attr, assignment]
        tensors[TARGET] = shifted_right(tensors[TARGET], start)
    output: Tensor = network(*tensors.values())
    return output


def _inputs(
    shown: Attending, network: nn.Module, vocab_size: int, max_tokens: int
) -> Iterator[Arrays]:
    """Single texts of random tokens, as long as they may be and shorter."""
    generator = np.random.default_rng(0)
    for length in np.linspace(max_tokens, 1, NUM_ROWS).astype(int).tolist():
        sizes = {TARGET: max(1, max_tokens - length)}
        ids = {
            name: generator.integers(vocab_size, size=(1, sizes.get(name, length)))
            for name in (IDS, TARGET)
        }
        if isinstance(network, TextNetwork):
            ids[IDS] = np.array([network.as_sample(row) for row in ids[IDS].tolist()])
        fixed = {
            MASK: np.ones((1, length), np.int64),
            TYPES: np.zeros((1, length), np.int64),
        }
        yield {name: {**ids, **fixed}[name] for name in shown.inputs}
