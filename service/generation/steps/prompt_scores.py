"""Scores a prompt: the log probability of each of its tokens after those before it.

A token's score comes from the logits of the token before it, so the first one has none. Pure; a
run gives the logits of a bounded number of tokens, so a prompt is scored chunk by chunk.
"""

from math import isfinite

from service.generation.choosing.sampling import log_total, logprobs_of
from service.generation.choosing.step_logits import StepLogits
from service.generation.sequence import Sequence


def score_prompt(sequence: Sequence, first: int, logits: StepLogits) -> bool:
    """Whether the logits are finite; if so, the sequence has the scores that they give.

    Row `i` of the logits is of the token at `first + i`, and scores the token after it.
    """
    if not len(logits):
        return True
    assert len(sequence.prompt_logprobs) == first, "each token is scored once, in order"
    num_top = sequence.request.params.prompt_logprobs
    assert num_top is not None, "only a prompt whose scores are requested has such rows"
    for place, logits_V in enumerate(logits.whole(), first + 1):  # noqa: N806 - V vocabulary
        total = log_total(logits_V)
        if not isfinite(total):
            return False
        token_id = int(sequence.token_ids[place])
        sequence.prompt_logprobs.append(logprobs_of(logits_V, token_id, num_top, total))
    return True
