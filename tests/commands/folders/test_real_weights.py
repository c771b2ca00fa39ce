"""all-MiniLM-L6-v2 in every form that its weights can be written in, each by the one command.

    python -m pytest -m long tests/commands/folders/test_real_weights.py

The weights are those of build/all-MiniLM-L6-v2, which `make models` brings. Similarities of three
public sentences are those that sentence-transformers' documentation has of this model.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
import transformers
from attendant.v1 import text_pb2 as text
from attendant.v1 import text_pb2_grpc
from numpy.typing import NDArray

from export.certificates.probes import SENTENCES
from tests.checkpoints.forms.folders import (
    Made,
    Make,
    as_it_is,
    in_parts,
    of_dtype,
    old_names,
    pickled,
    rounded,
    variant,
    without,
)
from tests.e2e.server import ATTENDANT, PLAIN, READY
from tests.fakes.onnx_folders import write_graph

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "build/all-MiniLM-L6-v2"
PUBLIC = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
)
SIMILARITIES = ((0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411))
TEXTS = (*PUBLIC, *SENTENCES)
PATIENCE_S = 300
Vectors = NDArray[np.float64]


def by_torchscript(made: Made) -> None:
    (made.folder / "onnx").mkdir()
    write_graph(made.network, made.folder / "onnx/model.onnx", ("last_hidden_state",))
    made.weights.unlink()


def by_dynamo(made: Made) -> None:
    """PyTorch's newer exporter, with the outputs of transformers as they are."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: torch.ones(2, 5, dtype=torch.int64) for name in names}
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    program = torch.onnx.export(
        made.network,
        (),
        kwargs=given,
        dynamic_shapes=dict.fromkeys(names, sizes),
        output_names=["last_hidden_state", "pooler_output"],
        dynamo=True,
        verbose=False,
    )
    assert program is not None, "the newer exporter gives a program"
    (made.folder / "onnx").mkdir()
    program.save(made.folder / "onnx/model.onnx")
    made.weights.unlink()


FORMS: Mapping[str, tuple[Make, float]] = {  # and the limit of differences of vectors
    "safetensors": (as_it_is, 1e-5),
    "shards": (in_parts("safetensors"), 1e-5),
    "bin": (pickled, 1e-5),
    "bin in parts": (in_parts("bin"), 1e-5),
    "older names of norms": (old_names, 1e-5),
    "vocab.txt": (without("tokenizer.json"), 1e-5),
    "variant fp16": (variant, 1e-5),
    "bf16": (of_dtype(torch.bfloat16), 1e-5),
    "FP8 by blocks": (rounded("fp8"), 1e-5),
    "int8 by rows": (rounded("ct_w8a8"), 1e-5),
    "ONNX of torch's older exporter": (by_torchscript, 1e-5),
    "ONNX of torch's newer exporter": (by_dynamo, 1e-5),
}
ROUNDED = ("variant fp16", "bf16", "FP8 by blocks", "int8 by rows")


@contextmanager
def served(folder: Path, cache: Path) -> Iterator[str]:
    """The address of `attendant serve FOLDER`."""
    ports = ("--grpc-port", "0", "--http-port=-1", "--metrics-port", "0")
    line = [str(ATTENDANT), "serve", f"minilm={folder}", "--folder-cache", str(cache), *ports]
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*line, "--precision", "fp32"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | PLAIN,
    )
    assert process.stdout is not None
    printed = []
    try:
        for each in process.stdout:
            printed.append(each)
            if match := READY.search(each):
                yield match[1]
                return
        pytest.fail("".join(printed))
    finally:
        process.kill()
        process.wait()


def embedded(address: str) -> Vectors:
    with grpc.insecure_channel(address) as channel:
        request = text.EmbedRequest(model="minilm", texts=TEXTS)
        response = text_pb2_grpc.TextServiceStub(channel).Embed(request, timeout=PATIENCE_S)
    return np.array([each.values for each in response.results])


@torch.inference_mode()
def expected_of(network: Any) -> Vectors:
    """Mean of the last states of transformers, of length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(SOURCE)
    rows = []
    for each in TEXTS:
        given = tokenizer(each, return_tensors="pt", truncation=True, max_length=256)
        mean = network(**given).last_hidden_state[0].mean(dim=0)
        rows.append((mean / mean.norm()).numpy())
    return np.array(rows)


@pytest.mark.long
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.skipif(not SOURCE.is_dir(), reason="`make models` brings the weights")
@pytest.mark.parametrize("form", FORMS)
def test_real_weights_in_a_form_give_the_similarities_of_the_reference(
    form: str, tmp_path: Path
) -> None:
    make, limit = FORMS[form]
    folder = tmp_path / "all-MiniLM-L6-v2"
    shutil.copytree(SOURCE, folder)
    network = transformers.AutoModel.from_pretrained(SOURCE, dtype=torch.float32).eval()
    made = Made(folder, network)
    make(made)
    with served(folder, tmp_path / "cache") as address:
        vectors = embedded(address)
    assert np.abs(vectors - expected_of(network)).max() < limit
    for first, second, similarity in SIMILARITIES:
        found = float(vectors[first] @ vectors[second])
        assert found == pytest.approx(similarity, abs=0.02 if form in ROUNDED else 1e-4)
