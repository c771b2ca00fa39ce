"""What export promises survives its file, and what it cannot promise is refused by name."""

import json
from typing import Any

import pytest

from service.contract.embedder_use import EmbedderUse
from service.contract.manifest import Example, Manifest
from service.errors import LoadError
from tests.fakes.sessions import classifier_manifest, embedder_manifest, raw_manifest


@pytest.mark.parametrize(
    "manifest",
    [
        classifier_manifest(fused={"MultiHeadAttention": 12}, accuracy={"held out": 0.98}),
        classifier_manifest(score_function="sigmoid"),
        embedder_manifest(parity={"logits": 3e-6}, versions={"torch": "2.13.0"}),
        embedder_manifest(
            embedder=EmbedderUse(
                {"query": "q: "}, "query", (3,), True, "dot", {"1": "AAAAAAAAgD8="}
            )
        ),
        embedder_manifest(examples=(Example("one"), Example("two", "pair"), Example("?", "", "c"))),
    ],
)
def test_a_manifest_survives_its_file(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    ("task", "stated", "expected"),
    [
        ("text-classification", "", "softmax"),
        ("text-classification", "sigmoid", "sigmoid"),
        ("pair-scoring", "", "sigmoid"),
        ("pair-scoring", "identity", "identity"),
        ("fill-mask", "", ""),
    ],
)
def test_scores_are_made_as_the_manifest_says_or_as_its_task_does(
    task: str, stated: str, expected: str
) -> None:
    manifest = Manifest.from_json(raw_manifest(task=task, score_function=stated))
    assert manifest.scores_by == expected


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
        (
            {"score_function": "relu"},
            "score_function is 'relu', expected none or softmax or sigmoid",
        ),
        ({"score_function": ["softmax"]}, "score_function is ['softmax'], expected none or"),
        ({"score_function": 0}, "score_function is 0, expected none or"),
        (
            {"task": "pair-scoring", "score_function": "softmax"},
            "score_function is 'softmax', expected none or sigmoid or identity for pair-scoring",
        ),
        (
            {"task": "fill-mask", "score_function": "sigmoid"},
            "score_function is 'sigmoid', expected none for fill-mask",
        ),
        ({"examples": [{"text": 3}]}, "examples.text is 3, expected a text"),
        ({"examples": [{"text": ""}]}, "examples.text is empty"),
        ({"examples": [{"text": "a", "image": "?"}]}, "examples.image is no base64"),
        (
            {"examples": [{"text": "a", "image": "A" * 21_848}]},
            "examples.image has 16386 bytes, expected at most 16384",
        ),
        ({"examples": [{"words": "a"}]}, "unexpected keyword argument 'words'"),
        ({"embedder": {"prompts": {"query": 3}}}, "embedder.prompts is no object of at most 1024"),
        ({"embedder": {"prompts": {"q": "a" * 4_097}}}, "embedder.prompts.q has 4097 characters"),
        ({"embedder": {"default_prompt": "q"}}, "embedder.default_prompt is 'q', expected one of"),
        ({"embedder": {"dimensions": [0]}}, "embedder.dimensions is (0,), expected whole numbers"),
        ({"embedder": {"dimensions": [9]}}, "embedder.dimensions is (9,), expected less than"),
        ({"embedder": {"similarity": "near"}}, "embedder.similarity is 'near', expected one of"),
        ({"embedder": {"ranges": {"4": "?"}}}, "embedder.ranges.4 is not float32 [2, 4] in base64"),
        ({"embedder": {"ranges": {"1": "AACAPwAAAAA="}}}, "ranges.1 has a least above a greatest"),
        ({"embedder": {"ranges": {"4": 3}}}, "embedder.ranges is no object of texts"),
        ({"embedder": {"colour": "red"}}, "unexpected keyword argument 'colour'"),
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


@pytest.mark.parametrize(
    ("template", "is_taken"),
    [
        ("{query} of {document}", True),
        ("{document}", False),
        ("{query} {query} {document}", False),
        ("{query} {document} {document}", False),
        ("{query} {document}.", False),
    ],
)
def test_a_template_of_pairs_has_a_query_and_ends_with_a_document(
    template: str, is_taken: bool
) -> None:
    values = json.loads(classifier_manifest().to_json())
    text = json.dumps({**values, "task": "pair-scoring", "labels": [], "pair_template": template})
    if is_taken:
        assert Manifest.from_json(text).pair_template == template
        return
    with pytest.raises(LoadError, match=f"pair_template has {len(template)} characters, expected"):
        Manifest.from_json(text)
