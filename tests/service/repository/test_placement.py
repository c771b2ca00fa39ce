"""On which device a version is opened, on a machine that is said to have CUDA or not."""

from pathlib import Path
from typing import Any

import pytest

from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Variant
from service.errors import LoadError
from service.repository.loading import Openers, load_model
from service.runtime.session import SessionOptions
from service.runtime.single_client_session import SPIN_US, LoneSession
from service.settings import Settings
from tests.fakes.sessions import (
    FakeSessions,
    classifier_manifest,
    doubling_session,
    text_session,
    write_model,
)

ALLOWED = "parameters { key: 'allow_cpu_nodes' value { string_value: 'true' } }"
REFUSED = "parameters { key: 'allow_cpu_nodes' value { string_value: 'false' } }"


def with_cuda(device: str) -> str:
    return "cuda" if device == "auto" else device


def without_cuda(device: str) -> str:
    if device == "cuda":
        raise LoadError("device cuda is requested, but CUDA cannot be used: no GPU is visible")
    return "cpu"


def opened(
    repository: Path,
    manifest: Manifest | None,
    config: str = "",
    machine: Any = with_cuda,
    **settings: Any,
) -> tuple[SessionOptions, str]:
    """The options that a model's session was opened with, and the version's description."""
    folder = write_model(repository, "m", manifest, config)
    for filename in manifest.graphs if manifest else ():
        (folder / "1" / filename).touch()
    sessions = FakeSessions(m=lambda: text_session("logits", 3) if manifest else doubling_session())
    openers = Openers(sessions, choose_device=machine)
    (version,) = load_model(ModelSource.of(repository, "m"), Settings(**settings), openers).versions
    (options,) = sessions.options
    return options, version.description


def test_auto_takes_cuda_where_a_graph_is_for_it(tmp_path: Path) -> None:
    options, description = opened(tmp_path, classifier_manifest())
    assert options.device == "cuda"
    assert " on cuda, " in description
    assert (
        opened(tmp_path / "other", classifier_manifest(), machine=without_cuda)[0].device == "cpu"
    )


def test_threads_poll_within_a_run_on_a_cpu_for_as_long_as_the_setting_says(tmp_path: Path) -> None:
    """They do not by default."""
    manifest = classifier_manifest()
    assert opened(tmp_path / "default", manifest, machine=without_cuda)[0].spin_us == 0
    assert opened(tmp_path / "set", manifest, machine=without_cuda, spin_us=7)[0].spin_us == 7
    assert opened(tmp_path / "cuda", manifest)[0].spin_us == 0


def test_a_small_model_is_opened_a_second_time_for_runs_that_are_alone(tmp_path: Path) -> None:
    write_model(tmp_path, "m", classifier_manifest())
    for most_mib, expected in ((0, [0]), (1, [0, SPIN_US])):
        sessions = FakeSessions(m=lambda: text_session("logits", 3))
        settings = Settings(lone_session_mib=most_mib, num_threads=2, instances=3)
        openers = Openers(sessions, choose_device=without_cuda)
        (version,) = load_model(ModelSource.of(tmp_path, "m"), settings, openers).versions
        assert [options.spin_us for options in sessions.options] == expected
        assert isinstance(version.sessions[0], LoneSession) == (most_mib > 0)
        assert len(set(map(id, version.sessions))) == 1, "all instances share what chooses"


def test_auto_takes_the_cpu_for_a_model_whose_graphs_are_all_for_it(tmp_path: Path) -> None:
    """And where the requested precision has none for CUDA; `cuda` refuses both, with the export."""
    for name, manifest, settings in (
        ("all", classifier_manifest(device="cpu"), {}),
        (
            "int8",
            classifier_manifest(variants=(Variant("int8", device="cpu"),)),
            {"precision": "int8"},
        ),
    ):
        options, description = opened(tmp_path / name, manifest, **settings)
        assert options.device == "cpu"
        assert " on cpu, " in description
        with pytest.raises(LoadError, match="attendant export"):
            opened(tmp_path / f"{name}-cuda", manifest, device="cuda", **settings)


def test_a_device_that_is_asked_for_is_refused_with_the_machine_s_reason(tmp_path: Path) -> None:
    for name, config, settings in (
        ("setting", "", {"device": "cuda"}),
        ("group", "instance_group { kind: KIND_GPU }", {}),
    ):
        with pytest.raises(LoadError, match="CUDA cannot be used: no GPU is visible"):
            opened(tmp_path / name, classifier_manifest(), config, without_cuda, **settings)


@pytest.mark.parametrize(
    ("manifest", "config", "is_allowed"),
    [
        (None, "", True),
        (None, REFUSED, False),
        (classifier_manifest(), "", False),
        (classifier_manifest(), ALLOWED, True),
    ],
)
def test_nodes_on_the_cpu_are_accepted_of_graphs_of_others_or_by_their_parameter(
    manifest: Manifest | None, config: str, is_allowed: bool, tmp_path: Path
) -> None:
    assert opened(tmp_path, manifest, config)[0].allows_cpu_nodes is is_allowed
