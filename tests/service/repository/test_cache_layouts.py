"""Which cache a generative model gets on a machine that is said to have CUDA; nothing runs there.

docs/how-to/cuda.md says what was verified on CUDA.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Variant
from service.errors import LoadError, ModelFailed, OutOfMemory
from service.generation.decoders.opening import CacheLimits, needing_memory
from service.repository.loading import LoadedVersion, Openers, load_model
from service.runtime.session import SessionOptions
from service.settings import Settings
from tests.fakes.paged import PagedDecoder
from tests.fakes.sessions import FakeDecoder, generator_manifest, write_model

SLOTS = Variant("fp16", device="cuda")
PAGED = Variant("fp16", device="cuda", layout="paged")
BOTH = generator_manifest(device="cpu", variants=(SLOTS, PAGED))


@dataclass
class Opened:
    """Fake decoders of both kinds, and what was opened."""

    files: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    recording: list[bool] = field(default_factory=list)
    fails: bool = False

    def slots(self, path: Path, options: SessionOptions, limits: CacheLimits) -> FakeDecoder:
        self.files.append(path.name)
        self.devices.append(options.device)
        return FakeDecoder(8, limits.max_tokens)

    def blocks(
        self, path: Path, options: SessionOptions, limits: CacheLimits, *, records_steps: bool
    ) -> PagedDecoder:
        self.files.append(path.name)
        self.devices.append(options.device)
        self.recording.append(records_steps)
        return PagedDecoder(10, 256, max_tokens=limits.max_tokens, vocab_size=257, fails=self.fails)


def load(
    repository: Path,
    manifest: Manifest = BOTH,
    config: str = "",
    machine: str = "cuda",
    *,
    fails: bool = False,
    **settings: Any,
) -> tuple[LoadedVersion, Opened]:
    folder = write_model(repository, "tale", manifest, config)
    for filename in manifest.graphs:
        (folder / "1" / filename).touch()
    opened = Opened(fails=fails)
    openers = Openers(
        decoder=opened.slots,
        paged_decoder=opened.blocks,
        choose_device=lambda device: machine if device == "auto" else device,
    )
    source = ModelSource.of(repository, "tale")
    (version,) = load_model(source, Settings(**settings), openers).versions
    return version, opened


def parameter(name: str, value: str) -> str:
    return f"parameters {{ key: '{name}' value {{ string_value: '{value}' }} }}"


def test_blocks_are_the_choice_where_there_is_a_graph_for_them(tmp_path: Path) -> None:
    version, opened = load(tmp_path)
    assert (opened.files, opened.devices) == (["model.fp16.paged.onnx"], ["cuda"])
    assert opened.recording == [False]
    assert "10 blocks of 256 tokens on cuda, " in version.description


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({"cache_layout": "slots"}, ""),
        ({"cache_layout": "paged"}, parameter("cache_layout", "slots")),
    ],
    ids=["setting", "parameter"],
)
def test_slots_are_served_on_the_device_where_they_are_wanted(
    settings: dict[str, Any], config: str, tmp_path: Path
) -> None:
    version, opened = load(tmp_path, config=config, **settings)
    assert (opened.files, opened.devices) == (["model.fp16.onnx"], ["cuda"])
    assert "8 slots of 64 tokens on cuda, " in version.description


def test_a_version_with_one_layout_serves_it(tmp_path: Path) -> None:
    manifest = generator_manifest(device="cpu", variants=(SLOTS,))
    assert load(tmp_path, manifest, cache_layout="paged")[1].files == ["model.fp16.onnx"]
    manifest = generator_manifest(device="cpu", variants=(PAGED,))
    files = load(tmp_path / "other", manifest, cache_layout="slots")[1].files
    assert files == ["model.fp16.paged.onnx"]


def test_the_cpu_has_slots(tmp_path: Path) -> None:
    _, opened = load(tmp_path, machine="cpu", cache_layout="paged")
    assert (opened.files, opened.devices) == (["model.onnx"], ["cpu"])


@pytest.mark.parametrize(
    ("settings", "config", "expected"),
    [
        ({"cuda_graphs": True}, "", True),
        ({"cuda_graphs": True}, parameter("cuda_graphs", "false"), False),
        ({}, parameter("cuda_graphs", "true"), True),
    ],
)
def test_steps_are_recorded_where_that_is_set(
    settings: dict[str, Any], config: str, expected: bool, tmp_path: Path
) -> None:
    assert load(tmp_path, config=config, **settings)[1].recording == [expected]


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemory("Failed to allocate memory for requested buffer of size 1073741824"),
        ModelFailed("CUDA failure 2: out of memory"),
    ],
    ids=["arena", "driver"],
)
def test_too_little_memory_says_what_is_needed_for_what(error: ModelFailed, tmp_path: Path) -> None:
    """3 MiB of weights and a cache of 2 GiB: both, and what to lower."""
    graph = tmp_path / "model.fp16.onnx"
    graph.write_bytes(b"0" * 3 * 2**20)
    expected = (
        r"too little memory on cuda: the graph's files have 3.0 MiB, the KV cache takes "
        r"2,048.0 MiB, and .*: .*lower kv_cache_bytes"
    )
    with (
        pytest.raises(LoadError, match=expected),
        needing_memory(graph, SessionOptions("cuda"), 2**31),
    ):
        raise error


def test_a_decoder_that_cannot_compute_a_token_is_not_served(tmp_path: Path) -> None:
    """A missing kernel or library shows when a graph first runs; the CPU is not tried."""
    with pytest.raises(LoadError, match=r"model.fp16.paged.onnx: as it was told to"):
        load(tmp_path, fails=True)
