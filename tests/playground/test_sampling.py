"""What the page computes of sampling parameters, and how often the server chooses each token."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.calls.sampling import Sampling
from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import log_total, sample
from tests.fakes.sampling import random_logits

NODE = shutil.which("node")
ROOT = Path(__file__).parents[2]
SCRIPT = """
import { shaped } from "./playground/maths/sampling.js";
const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const { candidates, settings, prompt, output } = JSON.parse(chunks.join(""));
console.log(JSON.stringify(shaped(candidates, settings, prompt, output)));
"""
VOCABULARY, DRAWS = 30, 4_000
PROMPT, OUTPUT = [3, 7, 7, 12], [7, 19, 19]
CASES: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.6, "top_k": 7},
    {"top_p": 0.8},
    {"temperature": 1.3, "min_p": 0.1},
    {"temperature": 1.2, "top_k": 9, "top_p": 0.7, "min_p": 0.02},
    {"repetition_penalty": 1.8, "presence_penalty": 0.7, "frequency_penalty": -0.4},
    {"logit_bias": {4: 3.0, 11: -2.0}, "repetition_penalty": 0.6, "top_p": 0.9},
]


def shaped(settings: dict[str, Any], logits: np.ndarray) -> dict[str, Any]:
    assert NODE is not None
    total = log_total(logits)
    order = np.argsort(-logits, kind="stable").tolist()
    given = {
        "candidates": [
            {"id": each, "logit": float(logits[each]), "logprob": float(logits[each]) - total}
            for each in order
        ],
        "settings": settings,
        "prompt": PROMPT,
        "output": OUTPUT,
    }
    ran = subprocess.run(  # noqa: S603 - our own module
        [NODE, "--input-type=module", "--eval", SCRIPT],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    answer = json.loads(ran.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("settings", CASES, ids=lambda case: "-".join(case))
def test_the_server_chooses_tokens_as_often_as_the_page_shows(settings: dict[str, Any]) -> None:
    """4,000 draws; a share may be off by 5 standard deviations of its estimate."""
    logits = random_logits(1, VOCABULARY, spread=1.5)
    expected = np.zeros(VOCABULARY)
    for row in shaped(settings, logits)["rows"]:
        expected[row["id"]] = row["probability"]
    state = SamplerState(Sampling(seed=7, **settings), np.array(PROMPT), ())
    for token_id in OUTPUT:
        state.append(token_id)
    drawn = np.zeros(VOCABULARY)
    for _ in range(DRAWS // 100):
        # Forks share one generator, and each has the same output before it.
        states = [state.fork() for _ in range(100)]
        chosen = sample(np.tile(logits, (100, 1)), states).token_ids
        np.add.at(drawn, chosen, 1 / DRAWS)
    assert not drawn[expected == 0].any()
    assert (np.abs(drawn - expected) <= 5 * np.sqrt(expected / DRAWS)).all()
