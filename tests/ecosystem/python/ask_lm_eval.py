"""`lm-eval` with `local-completions`: tasks of its own, with the tokenizer that the server offers.

What it generates is compared with the server's own answer, and the log likelihood of a text with
the sum over its tokens, each the output after those before it. Those of a Llama are compared with
what transformers computed.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import lm_eval
from lm_eval.tasks import TaskManager

URL = os.environ["ATTENDANT_URL"]
MODEL = f"{URL}/models/tiny-gpt"
PROMPTS = ["The function", "A list"]
SCORED = [" returns", " of names"]
MAX_TOKENS = 8
TOLERANCE = 1e-3  # of a sum of log probabilities
COMMON = {
    "dataset_path": "json",
    "test_split": "test",
    "doc_to_text": "{{text}}",
    "doc_to_target": "{{target}}",
}
TASKS: dict[str, dict[str, Any]] = {
    "continue": {
        "output_type": "generate_until",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": MAX_TOKENS},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    },
    "score": {
        "output_type": "loglikelihood",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    },
}


def ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310
    with build_opener(ProxyHandler({})).open(request) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def completion(prompt: str | list[int], **fields: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "temperature": 0, "max_tokens": MAX_TOKENS, **fields}
    choice: dict[str, Any] = ask(f"{MODEL}/v1/completions", body)["choices"][0]
    return choice


def ids_of(text: str) -> list[int]:
    ids: list[int] = ask(f"{MODEL}/tokenize", {"prompt": text, "add_special_tokens": False})[
        "tokens"
    ]
    return ids


def evaluated(
    folder: Path, model: str, pairs_by_task: dict[str, list[tuple[str, str]]]
) -> dict[str, Any]:
    """The evaluation of texts and targets by the task's name."""
    for name, pairs in pairs_by_task.items():
        task = TASKS[name]
        texts = folder / f"{name}.jsonl"
        texts.write_text("\n".join(json.dumps({"text": p, "target": t}) for p, t in pairs))
        data = {"dataset_kwargs": {"data_files": {"test": str(texts)}}}
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps({"task": name, **COMMON, **task, **data}))  # JSON is YAML
    found: dict[str, Any] = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=f"model={model},base_url={URL}/models/{model}/v1/completions,"
        "tokenizer_backend=remote",
        tasks=list(pairs_by_task),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        log_samples=True,
    )
    return found


def check_likelihood(sample: dict[str, Any]) -> None:
    """It is the sum over the target's tokens, each the output after those before it."""
    text, target = (ids_of(sample["doc"][name]) for name in ("text", "target"))
    expected = 0.0
    for place, token_id in enumerate(target):
        fields = {"logit_bias": {str(token_id): 100.0}, "max_tokens": 1, "logprobs": 0}
        answer = completion([*text, *target[:place]], return_token_ids=True, **fields)
        assert answer["token_ids"] == [token_id], "the bias decides"
        expected += answer["logprobs"]["token_logprobs"][0]
    ((found,),) = sample["resps"]
    assert abs(found[0] - expected) < TOLERANCE, (found, expected)


def check_llama() -> None:
    """`lm-eval` gives the log likelihoods of transformers."""
    stated = json.loads(os.environ["ATTENDANT_LIKELIHOODS"])
    pairs = [(text, target) for text, target, _ in stated]
    with tempfile.TemporaryDirectory() as name:
        samples = evaluated(Path(name), "llama", {"score": pairs})["samples"]["score"]
    found = {each["doc"]["target"]: each["resps"][0][0][0] for each in samples}
    for _, target, expected in stated:
        assert abs(found[target] - expected) < TOLERANCE, (target, found[target], expected)


def main() -> None:
    check_llama()
    # What is to be generated is what the server itself answers.
    answers = [completion(prompt, stop=["\n"])["text"] for prompt in PROMPTS]
    with tempfile.TemporaryDirectory() as name:
        pairs = {
            "continue": list(zip(PROMPTS, answers, strict=True)),
            "score": list(zip(PROMPTS, SCORED, strict=True)),
        }
        evaluation = evaluated(Path(name), "tiny-gpt", pairs)
    results = evaluation["results"]
    assert results["continue"]["exact_match,none"] == 1.0, results
    assert len(evaluation["samples"]["score"]) == len(SCORED)
    for sample in evaluation["samples"]["score"]:
        check_likelihood(sample)


if __name__ == "__main__":
    main()
