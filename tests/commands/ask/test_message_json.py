"""What `--json` prints: numbers as numbers, and of a model what its task has."""

import json

from attendant.v1 import generation_pb2, text_pb2

from commands.ask.message_json import json_fields


def test_counts_of_64_bits_are_numbers() -> None:
    response = text_pb2.ClassifyResponse(
        model="spam",
        num_tokens=2**40,
        results=[text_pb2.Classification(labels=[text_pb2.LabelScore(label="7", score=0.5)])],
    )
    fields = json_fields(response)
    assert fields["num_tokens"] == 2**40
    assert fields["results"][0]["labels"] == [{"label": "7", "score": 0.5}], "a text stays one"
    assert json.loads(json.dumps(fields)) == fields
    assert json_fields(text_pb2.ClassifyResponse())["num_tokens"] == 0
    assert json_fields(generation_pb2.SamplingParams(seed=7))["seed"] == 7


def test_a_model_has_the_fields_of_its_task() -> None:
    models = text_pb2.ListModelsResponse(
        models=[
            text_pb2.Model(name="spam", task="text-classification", labels=["ham", "spam"]),
            text_pb2.Model(name="graph", task="tensors"),
            text_pb2.Model(name="mini", task="embedding", embedding_size=384, pooling="mean"),
        ]
    )
    of_all = {"name", "version", "task", "max_batch_size"}
    assert [set(model) - of_all for model in json_fields(models)["models"]] == [
        {"labels"},
        set(),
        {"embedding_size", "pooling"},
    ]
    assert all(of_all <= set(model) for model in json_fields(models)["models"])
