"""Export a recurrent sequence-to-sequence network: trace, check, write.

Any client of the Open Inference Protocol sends token ids and gets token ids and attention back;
tokenizer.json, beside the graph, says which symbols they are, so that the server takes text too.
"""

import numpy as np
import onnx
import torch
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.checks.provider_support import device_of
from export.errors import ExportError
from export.examples import example_fields, rows_of_symbols
from export.graphs.graph import open_session
from export.graphs.lstm import OPERATOR
from export.graphs.recurrent import INPUTS, OUTPUTS, trace_greedy
from export.settings import (
    ExportSettings,
    GraphKind,
    HeldOut,
    OnStep,
    check_fp32,
    versions,
)
from export.writer import ExportedModel
from models.checkpoints.checkpoint import Checkpoint
from models.networks.recurrent import RecurrentSeq2Seq
from service.batching.collate import pad_right
from service.contract.manifest import Manifest

MAX_ABS_ERROR = 1e-4  # of attention, to PyTorch and to a row by itself; tokens must be equal
MAX_STEPS = 128  # each is traced: half a second, and 30 nodes of the graph
NUM_ROWS = 16
NETWORK = "recurrent"


def export_recurrent(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> ExportedModel:
    """A graph that decodes as many tokens as the longest target of training, and its manifest."""
    network, num_steps = checkpoint.model, checkpoint.max_tokens
    assert isinstance(network, RecurrentSeq2Seq), "others have their own recipe"
    check_fp32(settings, "a recurrent network's")
    if num_steps > MAX_STEPS:
        raise ExportError(
            f"max_tokens is {num_steps}, a graph that decodes by itself has at most "
            f"{MAX_STEPS} steps"
        )
    on_step("tracing the graph")
    graph = trace_greedy(network, num_steps)
    device = device_of(graph, GraphKind("fp32"), settings)
    on_step("comparing with PyTorch")
    parity = check_decoding(network, graph, num_steps)
    config = network.config
    names = [checkpoint.tokenizer.id_to_token(i) for i in range(config.vocab_size)]
    manifest = Manifest(
        task="text-generation",
        precision="fp32",
        device=device,
        network=NETWORK,
        max_tokens=config.max_positions + num_steps,
        max_source_tokens=config.max_positions,
        pad_token_id=config.pad_token_id,
        eos_token_ids=(config.end_token_id,),
        decoder_start_token_id=config.start_token_id,
        fused={OPERATOR: num_steps + 1},
        parity=parity,
        origin=checkpoint.origin,
        **example_fields(settings, rows_of_symbols(names, config.max_positions)),
        versions=versions(),
    )
    served = _config(settings, network, num_steps)
    return ExportedModel(graph, checkpoint.tokenizer, manifest, config=served)


def check_decoding(
    network: RecurrentSeq2Seq, graph: onnx.ModelProto, num_steps: int
) -> dict[str, float]:
    """Compare ragged rows with PyTorch and with each row alone; `ExportError` if they differ."""
    session = open_session(graph)
    names = [output.name for output in graph.graph.output]
    rows = _ragged_rows(network)
    source = pad_right(rows, network.config.pad_token_id)
    by_graph = session.run({INPUTS[0]: source}, names)
    with torch.inference_mode():
        tokens = torch.from_numpy(source)
        mask = (tokens != network.config.pad_token_id).to(torch.int64)
        by_network = [
            out.numpy() for out in network.greedy(tokens, mask, num_steps) if out is not None
        ]
    error = _difference("PyTorch's", by_graph, by_network)
    effect = 0.0
    for index, row in enumerate(rows):
        alone = session.run({INPUTS[0]: np.array([row])}, names)
        here = [
            output[index : index + 1, :, : len(row)]
            if output.ndim > 2
            else output[index : index + 1]
            for output in by_graph
        ]
        effect = max(effect, _difference("those of a row alone", here, alone))
    return {"max_abs_error": float(f"{error:.2e}"), "max_neighbour_effect": float(f"{effect:.2e}")}


def _difference(whose: str, by_graph: list[np.ndarray], by_network: list[np.ndarray]) -> float:
    """The largest in attention, where there is any; tokens may not differ at all."""
    num_wrong = int((by_graph[0] != by_network[0]).sum())
    if num_wrong:
        raise ExportError(f"{num_wrong} of {by_graph[0].size} tokens differ from {whose}")
    error = max(
        (float(np.abs(a - b).max()) for a, b in zip(by_graph[1:], by_network[1:], strict=True)),
        default=0.0,
    )
    if not error <= MAX_ABS_ERROR:  # also where it is not a number
        raise ExportError(
            f"attention differs from {whose} by up to {error:.2e}, the limit is {MAX_ABS_ERROR:.0e}"
        )
    return error


def _ragged_rows(network: RecurrentSeq2Seq) -> list[list[int]]:
    """Random rows of any tokens but padding, from the longest source to a single token."""
    config = network.config
    generator = np.random.default_rng(0)
    allowed = [i for i in range(config.vocab_size) if i != config.pad_token_id]
    lengths = np.linspace(config.max_positions, 1, NUM_ROWS).astype(int)
    return [generator.choice(allowed, size=length).tolist() for length in lengths]


def _config(settings: ExportSettings, network: RecurrentSeq2Seq, num_steps: int) -> ModelConfig:
    """The server's configuration: requests with sources of the same length run together."""
    config = ModelConfig(name=settings.name, max_batch_size=settings.max_batch_size)
    config.input.add(name=INPUTS[0], data_type="TYPE_INT64", dims=[-1])
    config.output.add(name=OUTPUTS[0], data_type="TYPE_INT64", dims=[num_steps])
    if network.score is not None:
        config.output.add(name=OUTPUTS[1], data_type="TYPE_FP32", dims=[num_steps, -1])
    config.dynamic_batching.SetInParent()
    return config
