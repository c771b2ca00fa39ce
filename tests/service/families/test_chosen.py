"""Forms of calls and of thoughts that settings and manifests choose."""

import json
from typing import Any

import pytest

from service.contract.manifest import Manifest
from service.errors import LoadError, SettingError
from service.families.call_forms import CALL_FORMS
from service.families.chosen import NAMES, forms_of
from service.settings import Settings
from tests.fakes.sessions import generator_manifest


@pytest.mark.parametrize("kind", NAMES)
def test_a_form_that_is_not_known_is_refused_with_those_that_are(kind: str) -> None:
    for name in ("", *NAMES[kind]):
        assert getattr(generator_manifest(**{kind: name}), kind) == name
        chosen: dict[str, Any] = {kind: f"m={name}" if name else ""}
        Settings(**chosen)
    text: dict[str, Any] = json.loads(generator_manifest().to_json()) | {kind: "json"}
    expected = f"{kind} is 'json', expected one of {', '.join(NAMES[kind])}"
    with pytest.raises(LoadError, match=expected):
        Manifest.from_json(json.dumps(text))
    for value in ("json", "a=hermes,b=json"):
        wrong: dict[str, Any] = {kind: value}
        with pytest.raises(SettingError, match=f"--{kind.replace('_', '-')}: .* one of "):
            Settings(**wrong)


def test_forms_are_by_models_and_one_is_of_all_others() -> None:
    assert forms_of(" a = glm, llama,c/d=none,") == {"a": "glm", "": "llama", "c/d": "none"}
    assert forms_of("") == {}
    assert "hermes" in CALL_FORMS
