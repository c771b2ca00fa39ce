"""What `--json` prints: numbers as numbers, and of a model what its task has."""

import json

from commands.ask.message_json import json_fields
from service.calls.answers import LabelScore, Timings
from service.calls.generation import Generate
from service.calls.models import ModelFacts, Models
from service.calls.sampling import Sampling
from service.calls.texts import Classification, Classifications


def test_counts_of_64_bits_are_numbers() -> None:
    answer = Classifications(
        model="spam",
        version="1",
        timings=Timings(),
        num_tokens=2**40,
        results=[Classification([LabelScore("7", 0.5)], 2, is_truncated=False)],
    )
    fields = json_fields(answer)
    assert fields["num_tokens"] == 2**40
    assert fields["results"][0]["labels"] == [{"label": "7", "score": 0.5}], "a text stays one"
    assert json.loads(json.dumps(fields)) == fields
    assert json_fields(answer.also(num_tokens=0))["num_tokens"] == 0
    call = Generate(model="tale", prompt="once", sampling_params=Sampling(seed=7))
    assert json_fields(call)["sampling_params"]["seed"] == 7


def test_a_model_has_the_fields_of_its_task() -> None:
    models = Models(
        [
            ModelFacts(name="spam", version="1", task="text-classification", labels=["a", "b"]),
            ModelFacts(name="graph", version="1", task="tensors"),
            ModelFacts(name="mini", version="1", task="embedding", embedding_size=4, pooling="cls"),
        ],
        max_texts=1,
    )
    of_all = {"name", "version", "task", "max_batch_size"}
    assert [set(model) - of_all for model in json_fields(models)["models"]] == [
        {"labels"},
        set(),
        {"embedding_size", "pooling"},
    ]
    assert all(of_all <= set(model) for model in json_fields(models)["models"])
