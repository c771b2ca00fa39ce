"""Export a recurrent sequence-to-sequence network: trace, check, write.

Any client of the Open Inference Protocol sends token ids and gets token ids and attention back;
tokenizer.json, beside the graph, says which symbols they are, so that the server takes text too.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.errors import ExportError
from export.graphs.lstm import OPERATOR
from export.graphs.recurrent import INPUTS, OUTPUTS, trace_greedy
from export.settings import ExportSettings, check_fp32, check_name, versions
from export.writer import place_version, save_tokenizer
from models.checkpoints.checkpoint import Checkpoint, CheckpointError
from models.data.tokenizer import TOKENIZER_FILE
from models.data.tokens import SPECIAL_TOKENS
from models.networks.recurrent import RecurrentSeq2Seq
from service.batching.collate import pad_right
from service.contract.manifest import MODEL_FILENAME, Manifest
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

MAX_ABS_ERROR = 1e-4  # of attention, to PyTorch and to a row by itself; tokens must be equal
MAX_STEPS = 128  # each is traced: half a second, and 30 nodes of the graph
NUM_ROWS = 16
CONFIG_FILE, MANIFEST_FILE = "config.pbtxt", "manifest.json"
NETWORK = "recurrent"
EXAMPLE_SYMBOLS = 4


def export_recurrent(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    on_step: Callable[[str], None] = lambda _: None,
) -> tuple[Path, dict[str, float]]:
    """Write a version into the repository; returns its folder and what was counted and measured.

    It decodes as many tokens as the longest target had in training. Raises `ExportError`, and then
    the repository is as it was.
    """
    network = checkpoint.model
    if not isinstance(network, RecurrentSeq2Seq):
        raise CheckpointError(f"{checkpoint.origin}: this needs a recurrent network")
    check_name(settings.name)
    check_fp32(settings, "a recurrent network's")
    if checkpoint.max_tokens > MAX_STEPS:
        raise ExportError(
            f"max_tokens is {checkpoint.max_tokens}, a graph that decodes by itself has at most "
            f"{MAX_STEPS} steps"
        )
    network.eval()
    on_step("tracing the graph")
    graph = trace_greedy(network, checkpoint.max_tokens)
    on_step("comparing with PyTorch")
    figures = check_decoding(network, graph, checkpoint.max_tokens)
    on_step("writing")
    config = _config(settings, network, checkpoint.max_tokens)
    manifest = _manifest(checkpoint, network, settings, figures)

    def write_version(folder: Path) -> None:
        onnx.save(graph, folder / MODEL_FILENAME)
        save_tokenizer(checkpoint.tokenizer, folder / TOKENIZER_FILE)
        (folder / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")

    def write_model_files(folder: Path) -> None:
        (folder / CONFIG_FILE).write_text(text_format.MessageToString(config), encoding="utf-8")

    folder = place_version(
        settings.repository / settings.name,
        settings.version,
        graph.ByteSize(),
        write_version,
        write_model_files,
        lambda target: _check_fits(target, config),
    )
    return folder, {f"{OPERATOR} nodes": checkpoint.max_tokens + 1, **figures}


def _manifest(
    checkpoint: Checkpoint,
    network: RecurrentSeq2Seq,
    settings: ExportSettings,
    figures: dict[str, float],
) -> Manifest:
    config = network.config
    names = [checkpoint.tokenizer.id_to_token(i) for i in range(config.vocab_size)]
    symbols = [name for name in names if name is not None and name not in SPECIAL_TOKENS]
    return Manifest(
        task="text-generation",
        precision="fp32",
        network=NETWORK,
        max_tokens=config.max_positions + checkpoint.max_tokens,
        max_source_tokens=config.max_positions,
        pad_token_id=config.pad_token_id,
        eos_token_ids=(config.end_token_id,),
        decoder_start_token_id=config.start_token_id,
        parity={name.replace(" ", "_"): value for name, value in figures.items()},
        origin=checkpoint.origin,
        example=settings.example or " ".join(symbols[: min(EXAMPLE_SYMBOLS, config.max_positions)]),
        versions=versions(),
    )


def check_decoding(
    network: RecurrentSeq2Seq, graph: onnx.ModelProto, num_steps: int
) -> dict[str, float]:
    """Compare ragged rows with PyTorch and with each row alone; `ExportError` if they differ."""
    session = OnnxSession(graph.SerializeToString(), SessionOptions(num_threads=available_cpus()))
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
    return {"max abs error": float(f"{error:.2e}"), "max neighbour effect": float(f"{effect:.2e}")}


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


def _check_fits(target: Path, config: ModelConfig) -> None:
    """A new version must have the tensors that its model has."""
    path = target / CONFIG_FILE
    stated = ModelConfig()
    if path.exists():
        text_format.Parse(path.read_text(encoding="utf-8"), stated)
    for side, have, want in (
        ("input", stated.input, config.input),
        ("output", stated.output, config.output),
    ):
        for tensor in have:
            if tensor not in want:
                raise ExportError(
                    f"the new version does not fit '{target.name}': its {side} '{tensor.name}' is "
                    "another, or there is none"
                )
