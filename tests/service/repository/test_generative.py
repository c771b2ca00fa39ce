"""What a generative model's folder may say, and what makes of it a model that runs."""

from pathlib import Path

import pytest

from service.contract.files import ModelSource
from service.errors import LoadError
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.fakes.sessions import FakeDecoders, generator_manifest, write_model

FAKES = Openers(decoder=FakeDecoders())


def test_a_sequence_is_as_long_as_the_model_and_the_setting_allow(tmp_path: Path) -> None:
    """The model takes 64: a setting of 0 or more leaves that, one of 40 shortens it."""
    folder = write_model(tmp_path, "tale", generator_manifest())
    for wanted, expected in ((0, 64), (40, 40), (1_000, 64)):
        (version,) = load_model(
            ModelSource.of(folder.parent, folder.name), Settings(max_context_tokens=wanted), FAKES
        ).versions
        assert version.decoder is not None
        assert version.decoder.decoder.max_tokens == expected
        assert f"8 slots of {expected} tokens" in version.description


def test_the_model_s_own_parameters_come_before_the_settings(tmp_path: Path) -> None:
    config = "parameters { key: 'max_context_tokens' value { string_value: '16' } }"
    folder = write_model(tmp_path, "tale", generator_manifest(), config)
    (version,) = load_model(
        ModelSource.of(folder.parent, folder.name), Settings(max_context_tokens=40), FAKES
    ).versions
    assert version.decoder is not None
    assert version.decoder.decoder.max_tokens == 16


@pytest.mark.parametrize(
    ("manifest", "config", "settings", "message"),
    [
        ({"eos_token_ids": (257,)}, "", {}, r"eos_token_ids.*257"),
        ({"first_token_ids": (300,)}, "", {}, r"first_token_ids has 300, expected 0 to 256"),
        ({"banned_token_ids": (1, 257)}, "", {}, r"banned_token_ids has 257, expected 0 to 256"),
        ({}, "", {"max_context_tokens": 1}, "max_context_tokens is 1, expected room for"),
        ({}, "instance_group { kind: KIND_GPU }", {}, "CUDA|cuda"),
        ({}, "max_batch_size: 4", {}, "max_batch_size is 4, expected 0"),
        (
            {},
            "parameters { key: 'max_draft_tokens' value { string_value: '32' } }",
            {},
            "max_draft_tokens is 32, expected at most 31",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_when_it_is_loaded(
    manifest: dict[str, object], config: str, settings: dict[str, int], message: str, tmp_path: Path
) -> None:
    folder = write_model(tmp_path, "tale", generator_manifest(**manifest), config)
    with pytest.raises(LoadError, match=message):
        load_model(ModelSource.of(folder.parent, folder.name), Settings(**settings), FAKES)  # type: ignore[arg-type]
