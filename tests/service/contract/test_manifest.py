"""What export promises survives its file, and what it cannot promise is refused by name."""

import json
from typing import Any

import pytest

from service.contract.manifest import Example, Manifest
from service.errors import LoadError
from tests.fakes.sessions import classifier_manifest, embedder_manifest, raw_manifest


@pytest.mark.parametrize(
    "manifest",
    [
        classifier_manifest(fused={"MultiHeadAttention": 12}, accuracy={"held out": 0.98}),
        embedder_manifest(parity={"logits": 3e-6}, versions={"torch": "2.13.0"}),
        embedder_manifest(examples=(Example("one"), Example("two", "pair"), Example("?", "", "c"))),
    ],
)
def test_a_manifest_survives_its_file(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_equal_manifests_have_the_same_bytes() -> None:
    """Whatever the order in which the exporter counted."""
    one = classifier_manifest(fused={"a": 1, "b": 2})
    two = classifier_manifest(fused={"b": 2, "a": 1})
    assert one.to_json() == two.to_json()
    assert one.to_json().endswith("}\n")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"task": "translation"}, "task is 'translation', expected one of"),
        ({"precision": "fp8"}, "precision is 'fp8', expected one of ('fp32', 'fp16', 'bf16', "),
        ({"max_tokens": 0}, "max_tokens is 0, expected at least 1"),
        ({"max_tokens": "512"}, "max_tokens is '512', expected a whole number"),
        ({"labels": []}, "labels is empty, a classifier needs its labels"),
        ({"task": "embedding"}, "embedding_size is missing, embedding needs it"),
        ({"format": 2}, "format is 2, this server reads 1"),
        ({"format": None}, "format is None, this server reads 1"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"labels": 3}, "'int' object is not iterable"),
        ({"examples": [{"text": 3}]}, "examples.text is 3, expected a text"),
        ({"examples": [{"text": ""}]}, "examples.text is empty"),
        ({"examples": [{"text": "a", "image": "?"}]}, "examples.image is no base64"),
        (
            {"examples": [{"text": "a", "image": "A" * 21_848}]},
            "examples.image has 16386 bytes, expected at most 16384",
        ),
        ({"examples": [{"words": "a"}]}, "unexpected keyword argument 'words'"),
    ],
)
def test_what_a_manifest_cannot_say_is_refused_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(LoadError) as caught:
        Manifest.from_json(raw_manifest(**changes))
    assert str(caught.value).startswith("manifest.json: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"text"', "null", '{"format": 1}'])
def test_what_is_no_manifest_is_a_load_error(text: str) -> None:
    with pytest.raises(LoadError, match=r"^manifest\.json: "):
        Manifest.from_json(text)


def test_a_field_that_is_missing_is_named() -> None:
    fields = json.loads(raw_manifest())
    del fields["pad_token_id"]
    with pytest.raises(LoadError, match="pad_token_id"):
        Manifest.from_json(json.dumps(fields))
