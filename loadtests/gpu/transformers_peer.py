"""transformers' `generate` for GPT-2 and Llama with random weights, the peer of our decoders.

With a static cache it compiles a step by itself on a GPU, in CUDA graphs. The same without
compiling stands beside it. docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from loadtests.gpu.build import DTYPES
from loadtests.gpu.context import Context
from loadtests.gpu.limits import free_memory
from loadtests.gpu.shapes import SEED, DecoderConfig
from loadtests.gpu.timing import Way
from loadtests.load.engine import Prompt
from models.networks.llama import LlamaConfig

STATIC, STATIC_EAGER = "transformers, static cache", "transformers, not compiled"
PEER_PRECISION = "bf16"
MAX_REASON = 300  # characters
Generate = Callable[[Sequence[Sequence[int]], int], object]


@contextmanager
def peers_of(
    context: Context, config: DecoderConfig
) -> Iterator[tuple[dict[str, Generate], list[str]]]:
    """The ways of transformers, or why they are not there; the block's end frees their memory."""
    try:
        model = transformers_model(config, context.device)
    except Exception as error:  # it is absent, or another version
        yield {}, [f"transformers cannot be measured: {said(error)}"]
        return
    peers: dict[str, Generate] = {STATIC_EAGER: _generate(model, is_compiled=False)}
    if context.device == "cuda":
        peers[STATIC] = _generate(model, is_compiled=True)
    try:
        yield peers, []
    finally:
        peers.clear()
        del model
        free_memory(context.device)


def transformers_model(config: DecoderConfig, device: str) -> Any:
    """A decoder of these sizes with random weights, made on the device."""
    from transformers import AutoModelForCausalLM

    torch.compiler.reset()  # it compiles the same code a few times only, and then goes on without
    torch.manual_seed(SEED)
    with torch.device(device):
        dtype = DTYPES[PEER_PRECISION]
        model: Any = AutoModelForCausalLM
        return model.from_config(_theirs(config), dtype=dtype).to(device).eval()


def _theirs(config: DecoderConfig) -> Any:
    from transformers import GPT2Config
    from transformers import LlamaConfig as TheirLlamaConfig

    end = config.eos_token_ids[0]
    if isinstance(config, LlamaConfig):
        return TheirLlamaConfig(
            vocab_size=config.vocab_size,
            max_position_embeddings=config.max_positions,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            tie_word_embeddings=config.is_tied,
            bos_token_id=end,
            eos_token_id=end,
        )
    return GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.max_positions,
        n_embd=config.hidden_size,
        n_layer=config.num_layers,
        n_head=config.num_heads,
        n_inner=config.intermediate_size,
        bos_token_id=end,
        eos_token_id=end,
    )


def _generate(model: Any, *, is_compiled: bool) -> Generate:
    """Greedy generation of a fixed number of tokens, past any end."""

    @torch.inference_mode()
    def generate(rows: Sequence[Sequence[int]], num_tokens: int) -> object:
        ids = torch.tensor(rows, device=model.device)
        outputs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=not is_compiled,
        )
        return outputs.cpu()

    return generate


def generating(generate: Generate, prompts: Sequence[Prompt]) -> Way:
    ids = [prompt.ids for prompt in prompts]
    (num_tokens,) = {prompt.num_tokens for prompt in prompts}
    return lambda: generate(ids, num_tokens)


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:MAX_REASON]}"
