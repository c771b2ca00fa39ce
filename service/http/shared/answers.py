"""The parts of an answer that completions and chat completions share."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from service.calls.generation import GeneratedText, GenerationUsage

Values: TypeAlias = dict[str, Any]


CONTINUES: Values = {"finish_reason": None, "stop_reason": None}


def end_of(result: GeneratedText) -> Values:
    """Why an output ended, a stop token by its number; nothing of both while it continues."""
    token_id = result.stop_token_id
    reason = token_id if token_id is not None else result.stop_reason or None
    return {"finish_reason": result.finish_reason or None, "stop_reason": reason}


def usage_of(usages: Iterable[GenerationUsage]) -> Values:
    """The tokens of a whole answer."""
    counted = list(usages)
    num_thoughts = sum(usage.reasoning_tokens for usage in counted)
    thoughts = {"completion_tokens_details": {"reasoning_tokens": num_thoughts}}
    return {
        **counts_of(
            sum(usage.prompt_tokens for usage in counted),
            sum(usage.output_tokens for usage in counted),
        ),
        "prompt_tokens_details": {
            "cached_tokens": sum(usage.reused_tokens for usage in counted),
        },
        **(thoughts if num_thoughts else {}),
    }


def counts_of(num_prompt: int, num_output: int) -> Values:
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_output,
        "total_tokens": num_prompt + num_output,
    }
