"""Generate text in plain PyTorch, without a cache: the slow reference of the fast way.

Knows nothing about tokenizers. Each step runs the whole sequence again.
"""

from collections.abc import Sequence

import torch

from models.gpt import GPT


def generate(
    model: GPT,
    prompt: Sequence[int],
    num_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    ignore_eos: bool = False,
) -> list[int]:
    """Up to `num_tokens` new ids, fewer where the end-of-text id (left out) or max_positions stops.

    Temperature 0 is greedy; otherwise ids are drawn from softmax(logits / temperature).
    """
    ids = list(prompt)
    limit = min(len(ids) + num_tokens, model.config.max_positions)
    with torch.inference_mode():
        while len(ids) < limit:
            logits = model.logits(model.hidden_states(torch.tensor([ids]))[0, -1]).float()
            if temperature:
                weights = torch.softmax(logits / temperature, dim=-1)
                token = int(torch.multinomial(weights, 1, generator=generator))
            else:
                token = int(logits.argmax())
            if token == model.config.eos_token_id and not ignore_eos:
                break
            ids.append(token)
    return ids[len(prompt) :]
