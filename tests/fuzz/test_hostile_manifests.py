"""A manifest is read, or refused in one short sentence that names the file, whatever it has."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.contract.manifest import Manifest
from service.errors import LoadError
from tests.fakes.hostile_folder import hostile
from tests.fakes.sessions import embedder_manifest
from tests.fakes.tasks import reading_manifest

MAX_MESSAGE = 2_000  # characters
MANIFESTS = {
    "embedding": embedder_manifest(),
    "pair-scoring": reading_manifest("pair-scoring"),
}
OWN: dict[str, Any] = {
    "prompts": {"query": "find: "},
    "default_prompt": "query",
    "dimensions": [2, 1],
    "is_normalized": True,
    "similarity": "dot",
    "ranges": {"2": "AAAAAAAAAAAAAIA/AACAPw=="},
}
EMBEDDERS = st.dictionaries(
    st.sampled_from([*OWN, "unknown"]),
    hostile | st.sampled_from([*OWN.values(), {"99999999999999999999": ""}, {"2": "=" * 9}]),
)
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            *("task", "labels", "score_function", "pair_template", "embedding_size"),
            *("sparse_size", "sparse_rows", "unweighted_token_ids", "token_vector_size"),
            *("eos_token_ids", "sampling", "pooling", "example", "examples", "variants"),
        ]
    ),
    hostile | st.sampled_from(["sigmoid", "token", "{query}{document}", "{query.__class__}"]),
    max_size=3,
)
bounded = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def outcome(text: str) -> str:
    """Empty if the manifest was read, else the sentence that refuses it."""
    try:
        Manifest.from_json(text)
    except LoadError as error:
        message = str(error)
    else:
        return ""
    assert "manifest.json" in message
    assert len(message) < MAX_MESSAGE
    message.encode()
    return message


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
def test_the_manifest_that_is_changed_can_be_read(manifest: Manifest) -> None:
    own = OWN if manifest.task == "embedding" else None
    assert outcome(json.dumps(json.loads(manifest.to_json()) | {"embedder": own})) == ""


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
@bounded
@given(fields=FIELDS, embedder=st.none() | EMBEDDERS | hostile)
def test_any_manifest(manifest: Manifest, fields: dict[str, Any], embedder: Any) -> None:
    outcome(json.dumps(json.loads(manifest.to_json()) | fields | {"embedder": embedder}))


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"format": ' + "9" * 10_000 + "}"])
def test_a_file_that_is_no_object_is_refused(text: str) -> None:
    assert outcome(text)
