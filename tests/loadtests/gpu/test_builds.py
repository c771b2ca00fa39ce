"""Models that are built ahead by processes of their own, and what becomes of those that fail."""

import os
import time
from pathlib import Path

from loadtests.gpu.build import build, decoder_kinds, encoder_kinds
from loadtests.gpu.builds import Builds, begin, builds_of
from loadtests.gpu.context import Context, Run
from loadtests.gpu.running import run_all
from loadtests.gpu.sections import SECTIONS, Section
from loadtests.gpu.shapes import DECODERS, ENCODERS, names_of
from loadtests.gpu.speed_decoders import PAGED, RECORDED, SLOTS, ways_of
from service.contract.manifest import Manifest

WAIT_S = 100.0  # on a busy machine; a tiny one takes about 3 s on a quiet one
COUNTS = "tests.loadtests.gpu.made_up.counts"


def context_of(run: Run) -> Context:
    return Context(run, "6 speed", time.monotonic() + WAIT_S)


def test_what_begins_with_the_run_is_there_for_its_sections(tiny_run: Run) -> None:
    """A section waits for a model that another process is building, and begins none itself."""
    begin(tiny_run)
    builds = builds_of(context_of(tiny_run))
    names = names_of(is_tiny=True)
    processes = {name: builds._process_file(name).read_text() for name in names}
    builds.start(names)
    assert processes == {name: builds._process_file(name).read_text() for name in names}
    for name in names:
        assert builds.problem(name, WAIT_S) == ""
        manifest = Manifest.from_json((builds.folder(name) / "manifest.json").read_text())
        assert manifest.precision == "fp32"
    builds.start(names)  # nothing is left to do
    assert processes == {name: builds._process_file(name).read_text() for name in names}


def test_a_shape_that_is_not_built_has_its_reason(tmp_path: Path) -> None:
    builds = Builds(tmp_path / "speed", "cpu")
    builds.start(["bert-of-mars"])
    assert builds.problem("bert-of-mars", WAIT_S) == "building it failed: KeyError: 'bert-of-mars'"
    assert builds.problem("gpt2", 0.0) == "it was not begun"


def test_a_process_that_takes_longer_is_not_waited_for(tmp_path: Path) -> None:
    builds = Builds(tmp_path, "cpu")
    builds._process_file("gpt2").write_text(str(os.getpid()))
    assert builds.problem("gpt2", 0.2) == "it is not built after 0 s of waiting"


def test_a_process_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    """Its file is left behind; no process has the number."""
    builds = Builds(tmp_path, "cpu")
    builds._process_file("bert-of-mars").write_text(str(2**22 + 1))
    assert builds.problem("bert-of-mars", 0.0).endswith("its process ended early")
    builds.start(["bert-of-mars"])
    assert "KeyError" in builds.problem("bert-of-mars", WAIT_S)


def test_preparations_that_cannot_be_begun_leave_the_run_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, "cpu", is_tiny=True)
    section = Section(1, "counts", "Counting", COUNTS, 1.0, begins="tests.loadtests.gpu.absent")
    assert run_all(run, [section], [1], 60, is_again=False)


def test_sections_of_speed_begin_their_models_with_the_run() -> None:
    begun = {section.name for section in SECTIONS if section.begins}
    assert begun == {"speed", "server-cost", "layouts"}
    assert names_of(is_tiny=False)[:2] == [next(iter(ENCODERS)), next(iter(DECODERS))]


def test_a_gpu_times_both_layouts_in_both_half_precisions() -> None:
    assert len(set(encoder_kinds("cuda"))) == 4
    first, *others = DECODERS
    assert decoder_kinds(first, "cuda") == [("fp16", "paged"), ("fp16", "")]
    assert ways_of(first, "cuda") == [PAGED, RECORDED, SLOTS]
    assert ways_of(first, "cpu") == [SLOTS]
    assert others
    for name in others:
        assert decoder_kinds(name, "cuda") == [("fp16", "paged")]
        assert ways_of(name, "cuda") == [PAGED, RECORDED]


def test_graphs_for_a_gpu_are_built_without_one(tmp_path: Path) -> None:
    build(tmp_path, "tiny-encoder", "cuda")
    text = (tmp_path / "tiny-encoder" / "1" / "manifest.json").read_text()
    manifest = Manifest.from_json(text)
    assert manifest.kinds == ("fp16", "fp16.padded", "bf16", "bf16.padded")
    assert {graph.device for graph in manifest.graphs.values()} == {"cuda"}
    assert all((tmp_path / "tiny-encoder" / "1" / name).is_file() for name in manifest.graphs)
