"""A folder of models: what is served, under which versions, and why the rest is not."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.batching.engine import BatchEngine
from service.errors import InvalidArgument, LoadError, NotFound, Unavailable
from service.observe.observers import Observers
from service.repository.loading import Openers
from service.repository.opening import OpenSession
from service.repository.repository import ModelRepository
from service.repository.version import parse_version
from service.runtime.cost import CostCurve
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession
from service.serving.model import Caller, InferRequest
from service.settings import Settings
from tests.fakes.scalers import Listener
from tests.fakes.sessions import (
    FakeSession,
    FakeSessions,
    classifier_manifest,
    doubling_session,
    embedder_manifest,
    raw_manifest,
    simple_session,
    strings_session,
    text_session,
    write_model,
)
from tests.service.runtime.test_session import write_graph


@asynccontextmanager
async def loaded(
    folder: Path, open_session: OpenSession, listener: Listener | None = None, **settings: object
) -> AsyncIterator[ModelRepository]:
    values = Settings(model_repository=folder, **settings)  # type: ignore[arg-type]
    repository = ModelRepository(values, Observers(), Openers(open_session))
    try:
        await repository.load_all(listener or Listener())
        yield repository
    finally:
        await asyncio.to_thread(repository.close, 10)


def classifier() -> FakeSession:
    return text_session("logits", 3)


async def test_a_bare_graph_is_completed_and_served(repository: Path) -> None:
    """Nothing but `bare/1/model.onnx`, through the real runtime."""
    kinds = TensorProto.FLOAT, TensorProto.FLOAT
    write_graph(repository / "bare/1/model.onnx", "Neg", kinds, (("n", 4), ("n", 4)))
    async with loaded(repository, OnnxSession) as models:
        assert models.failures == {}
        bare = models.find("bare")
        assert bare.interface.max_batch_size == 64
        assert [(spec.name, spec.dims) for spec in bare.signature.inputs] == [("x", (4,))]
        x = np.ones((3, 4), np.float32)
        reply = await bare.infer(InferRequest({"x": x}, 3, Caller(time.monotonic())))
        assert reply.outputs["y"].tolist() == (-x).tolist()


async def test_a_graph_of_fixed_shape_is_served_without_batching(repository: Path) -> None:
    kinds = TensorProto.FLOAT, TensorProto.FLOAT
    write_graph(repository / "fixed/1/model.onnx", "Transpose", kinds, ((2, 3), (3, 2)))
    async with loaded(repository, OnnxSession) as models:
        fixed = models.find("fixed")
        assert fixed.interface.max_batch_size == 0
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        requests = [InferRequest({"x": x + n}, 1, Caller(time.monotonic())) for n in range(5)]
        replies = await asyncio.gather(*map(fixed.infer, requests))
        for n, reply in enumerate(replies):
            assert reply.outputs["y"].tolist() == (x + n).T.tolist()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no graph": (lambda m: (m / "1/model.onnx").unlink(), "version 1 has no model.onnx"),
    "no version": (
        lambda m: (m / "1").rename(m / "one"),
        "no version folder to serve: found none",
    ),
    "policy selects none": (
        lambda m: (m / "config.pbtxt").write_text("version_policy { specific { versions: [2] } }"),
        "no version folder to serve: found [1]",
    ),
    "unknown field": (
        lambda m: (m / "config.pbtxt").write_text("colour: 'red'"),
        'config.pbtxt: 1:1 : Message type "inference.ModelConfig" has no field named "colour"',
    ),
    "config not text": (lambda m: (m / "config.pbtxt").write_bytes(b"\xff"), "config.pbtxt: "),
    "manifest cut": (lambda m: (m / "1/manifest.json").write_text("{"), "manifest.json: "),
    "no tokenizer": (lambda m: (m / "1/tokenizer.json").unlink(), "tokenizer.json: "),
    "number of a wrong type": (
        lambda m: (m / "1/manifest.json").write_text(raw_manifest(max_tokens=3.5)),
        "manifest.json: max_tokens is 3.5",
    ),
    "other labels than logits": (
        lambda m: (m / "1/manifest.json").write_text(raw_manifest(labels=["a", "b"])),
        "task text-classification needs an output 'logits' of shape [-1, 2], the graph has",
    ),
    "other task": (
        lambda m: (m / "1/manifest.json").write_text(embedder_manifest().to_json()),
        "task embedding needs an output 'embedding' of shape [-1, 4], the graph has",
    ),
    "longer than a batch": (
        lambda m: (m / "1/manifest.json").write_text(raw_manifest(max_tokens=100_000)),
        "max_batch_tokens is 16384, but a text of this model may have 100000 tokens",
    ),
    "instance groups in two places": (
        lambda m: (m / "config.pbtxt").write_text(
            "instance_group [{ kind: KIND_CPU }, { kind: KIND_GPU }]"
        ),
        "config.pbtxt: instance_group: groups of one kind and place are supported, not several",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_one_broken_model_is_reported_by_name_and_does_not_stop_the_others(
    repository: Path, case: str
) -> None:
    for name in ("a", "broken", "z"):
        write_model(repository, name, classifier_manifest())
    damage, text = BROKEN[case]
    damage(repository / "broken")
    told = Listener()
    sessions = FakeSessions(a=classifier, broken=classifier, z=classifier)
    async with loaded(repository, sessions, told) as models:
        assert [model.name for model in models.models()] == ["a", "z"]
        assert list(models.failures) == ["broken"]
        assert models.failures["broken"].startswith(text)
        assert models.failures["broken"]
        assert repr(models) == "<ModelRepository ['a', 'z'], failed ['broken']>"
        assert told.models == [("a", True), ("broken", False), ("z", True)]
        assert not models.readiness.is_ready
        with pytest.raises(NotFound, match="'broken' has no available versions"):
            models.find("broken")


async def test_a_graph_that_cannot_be_opened_is_reported_by_name(repository: Path) -> None:
    write_model(repository, "good")
    write_model(repository, "bad")
    async with loaded(repository, FakeSessions(good=doubling_session)) as models:
        assert models.failures == {"bad": "model.onnx: cannot be parsed"}
        assert models.has("good")


async def test_whatever_opening_a_graph_raises_the_others_are_served(repository: Path) -> None:
    def explode() -> FakeSession:
        raise RuntimeError("out of luck")

    write_model(repository, "bad")
    write_model(repository, "good")
    async with loaded(repository, FakeSessions(bad=explode, good=doubling_session)) as models:
        assert models.failures == {"bad": "RuntimeError: out of luck"}
        assert models.has("good")


async def test_a_text_model_whose_graph_takes_something_else_is_refused(repository: Path) -> None:
    write_model(repository, "m", classifier_manifest())
    async with loaded(repository, FakeSessions(m=simple_session)) as models:
        assert models.failures["m"].startswith("a text model takes input_ids and")


async def test_a_batch_of_rows_that_the_token_bound_cannot_hold_is_refused_at_load(
    repository: Path,
) -> None:
    """64 rows of a token each against a bound of 10: no request of 11 rows could ever run."""
    config = "parameters { key: 'max_batch_tokens' value { string_value: '10' } }"
    write_model(repository, "m", config=config)
    async with loaded(repository, FakeSessions(m=doubling_session)) as models:
        assert models.failures == {
            "m": "max_batch_tokens is 10, but a request of this model may have 64 rows, "
            "a token each"
        }


async def test_measured_costs_are_logged_in_short_and_whole_at_debug_level(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    curve = CostCurve(23.0, 0.37, 0.003823, 45.8e-6)
    monkeypatch.setattr("service.repository.opening.measure_cost", lambda *_: curve)
    caplog.set_level(logging.DEBUG, "service.repository.repository")
    write_model(repository, "m", classifier_manifest())
    async with loaded(repository, FakeSessions(m=classifier), measure_cost_s=60.0):
        (short,) = [text for text in caplog.messages if text.startswith("loaded 'm'")]
    assert short.endswith("; measured: 45.8 us per token, 1.1 ms per run")
    assert f"costs of 'm' version 1: {curve!r}" in caplog.messages


async def test_readiness_is_strict_only_when_asked(repository: Path) -> None:
    write_model(repository, "bad")
    async with loaded(repository, FakeSessions()) as models:
        assert not models.readiness.is_ready
    async with loaded(repository, FakeSessions(), strict_readiness=False) as models:
        assert models.readiness.is_ready


REMEDIES = {
    "none": "mend or remove it, and start the server again",
    "poll": "mend or remove it in the repository, which is looked at every 15 s",
    "explicit": "mend it and load it again, or unload it",
}


@pytest.mark.parametrize("mode", REMEDIES)
async def test_what_keeps_a_server_from_being_ready_is_named_with_the_way_out(
    repository: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("e", "c", "d", "b"):
        write_model(repository, name)
    write_model(repository, "good", config="max_batch_size: 8")
    sessions = FakeSessions(good=doubling_session)
    async with loaded(repository, sessions, model_control_mode=mode, load_models="*") as models:
        assert models.readiness.obstacle == (
            f"'b', 'c', 'd' and 1 more are not served, and the log says why: {REMEDIES[mode]}; "
            "under --no-strict-readiness the server is ready without it"
        )
        assert f"the server is not ready: {models.readiness.obstacle}" in caplog.messages
        assert models.readiness.obstacle_of("b").endswith(REMEDIES[mode])
        assert models.readiness.obstacle_of("good") == models.readiness.obstacle_of("nope") == ""
        if mode == "explicit":
            for name in ("b", "c", "d"):
                await models.unload(name)
            assert models.readiness.obstacle.startswith("'e' is not served, ")
            assert models.readiness.obstacle_of("b") == "the model is unloaded"


async def test_an_empty_repository_is_ready_unless_models_are_demanded(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Either way the log says which folder was read."""
    for least, is_ready in ((0, True), (1, False)):
        caplog.clear()
        async with loaded(repository, FakeSessions(), min_models=least) as models:
            assert models.readiness.is_ready is is_ready
            assert models.models() == []
        assert f"--model-repository {repository} has no models" in caplog.text
        assert ("the server is not ready: 0 models" in caplog.text) is not is_ready


@pytest.mark.parametrize(("least", "is_ready"), [(1, True), (2, True), (3, False)])
async def test_models_that_failed_do_not_count_for_the_least_number(
    repository: Path, caplog: pytest.LogCaptureFixture, least: int, is_ready: bool
) -> None:
    for name in ("one", "two", "bad"):
        write_model(repository, name)
    sessions = FakeSessions(one=doubling_session, two=doubling_session)
    async with loaded(repository, sessions, strict_readiness=False, min_models=least) as models:
        assert models.readiness.is_ready is is_ready
    shortage = f"2 models are served of those in {repository}, expected --min-models 3"
    assert (shortage in caplog.text) is not is_ready


async def test_under_explicit_control_loading_and_unloading_change_what_is_enough(
    repository: Path,
) -> None:
    """Nothing but the number counts: a server that is to start with none is told 0."""
    write_model(repository, "m")
    sessions = FakeSessions(m=doubling_session)
    async with loaded(repository, sessions, model_control_mode="explicit", min_models=1) as models:
        assert not models.readiness.is_ready
        await models.load("m")
        assert models.readiness.is_ready
        await models.unload("m")
        assert not models.readiness.is_ready


async def test_a_repository_that_is_not_there_is_refused_before_a_port_is_open(
    tmp_path: Path,
) -> None:
    """The repository is made first, and the ports of the server after it."""
    settings = Settings(model_repository=tmp_path / "none")
    with pytest.raises(LoadError, match=r"none is not a folder: name one with --model-repository"):
        ModelRepository(settings, Observers(), Openers(FakeSessions()))


async def test_files_and_hidden_folders_are_no_models(repository: Path) -> None:
    write_model(repository, "m")
    write_model(repository, ".git")
    (repository / "README.md").touch()
    (repository / "m" / "notes").mkdir()
    async with loaded(repository, FakeSessions(m=doubling_session)) as models:
        assert [model.name for model in models.models()] == ["m"]
        assert models.failures == {}


async def test_the_highest_version_is_served_unless_the_policy_says_otherwise(
    repository: Path,
) -> None:
    for version in (2, 10, 9):
        write_model(repository, "latest", version=version)
        write_model(repository, "all", config="version_policy { all {} }", version=version)
    sessions = FakeSessions(latest=doubling_session, all=doubling_session)
    async with loaded(repository, sessions) as models:
        assert models.versions("latest") == [10]
        assert models.versions("all") == [2, 9, 10]
        assert models.find("all").version == 10
        assert models.find("all", "9").version == 9
        with pytest.raises(NotFound) as caught:
            models.find("latest", "9")
        assert str(caught.value) == "Request for unknown model: 'latest' version 9 is not found"
        found = [(model.name, model.version) for model in models.models()]
        assert found == [("all", 2), ("all", 9), ("all", 10), ("latest", 10)]


async def test_unknown_names_are_not_found_in_triton_s_words(repository: Path) -> None:
    write_model(repository, "m")
    async with loaded(repository, FakeSessions(m=doubling_session)) as models:
        for name in ("nope", ""):
            with pytest.raises(NotFound) as caught:
                models.find(name)
            assert str(caught.value) == f"Request for unknown model: '{name}' is not found"
        with pytest.raises(NotFound, match="'m' version 0 is not found"):
            models.find("m", "0")
        assert [models.has("m"), models.has("m", "1"), models.has("m", "2")] == [True, True, False]
        assert not models.has("nope")
        with pytest.raises(InvalidArgument):
            models.has("m", "abc")


async def test_while_loading_the_server_is_not_ready(repository: Path) -> None:
    settings = Settings(model_repository=repository)
    models = ModelRepository(settings, Observers(), Openers(FakeSessions()))
    assert not models.readiness.is_ready
    with pytest.raises(Unavailable, match=r"^Server not ready$"):
        models.find("m")
    models.close(timeout_s=10)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("", None), ("1", 1), ("0", 0), ("1abc", 1), ("007", 7), ("12.5", 12), ("+1", 1)),
        *((" 1", 1), ("\t\n\v\f\r 1", 1), ("1 ", 1), ("-0", 0), ("0" * 30 + "2", 2)),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_versions_are_read_as_triton_reads_them(text: str, number: int | None) -> None:
    assert parse_version(text) == number


WRONG_VERSIONS = [
    *("abc", " ", "v1", "-", "--1", "+-1", "- 1", "\u00a01", "\u0661", "9" * 20, "9" * 5_000),
    *("9223372036854775808", "-9223372036854775809"),
]


@pytest.mark.parametrize("text", WRONG_VERSIONS)
def test_a_version_that_is_no_number_is_refused_in_triton_s_words(text: str) -> None:
    """5,000 digits are more than Python turns into a number without complaint."""
    with pytest.raises(InvalidArgument) as caught:
        parse_version(text)
    assert str(caught.value) == (
        f"failed to get model version from specified version string '{text}' "
        "(details: stol), version should be an integral value > 0"
    )


def test_a_negative_version_is_refused_in_triton_s_words() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_version("-1")
    assert str(caught.value) == (
        "invalid model version specified '-1' , version should be an integral value > 0"
    )


async def test_sessions_are_opened_as_instance_group_and_settings_say(repository: Path) -> None:
    """Runs at once share one session, and all processors; a parameter overrides the setting.

    Groups of one kind add up, those that name no count with the setting's.
    """
    write_model(repository, "one")
    groups = "instance_group [{ count: 1 kind: KIND_CPU }, { kind: KIND_CPU }]"
    write_model(repository, "two", config=groups)
    threads = "parameters { key: 'intra_op_thread_count' value { string_value: '7' } }"
    write_model(repository, "set", config=threads)
    makers = dict.fromkeys(("one", "set", "two"), strings_session)
    sessions = FakeSessions(**makers)
    async with loaded(repository, sessions, device="cpu", can_spin=True) as models:
        assert models.failures == {}
        config = ModelConfig.FromString(models.find("two").interface.shown)
        assert [(group.name, group.count) for group in config.instance_group] == [
            ("two_0", 1),
            ("two_1", 2),
        ]
        engines = {model.name: model._engine for model in models.models()}
        counts = {
            name: engine._crossing.num_threads
            for name, engine in engines.items()
            if isinstance(engine, BatchEngine)
        }
        assert counts == {"one": 2, "set": 2, "two": 3}
    one, seven, two = sessions.options
    assert {name: len(opened) for name, opened in sessions.opened.items()} == {
        "one": 1,
        "set": 1,
        "two": 1,
    }
    assert one.num_threads == available_cpus()
    assert seven.num_threads == 7
    assert two.num_threads == available_cpus()
    assert all(options.device == "cpu" and options.can_spin for options in sessions.options)


async def test_closing_ends_every_engine(repository: Path) -> None:
    write_model(repository, "m")
    async with loaded(repository, FakeSessions(m=doubling_session)) as models:
        model = models.find("m")
    with pytest.raises(Unavailable):
        await model.infer(
            InferRequest({"x": np.zeros((1, 1), np.float32)}, 1, Caller(time.monotonic()))
        )
