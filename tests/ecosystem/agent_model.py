"""A Llama that has learnt to call a tool: what it writes is known, whatever the prompt says.

Each token of an answer has a direction of its own, and the head's row of the next token reads it:
the network is a table of what follows what. The chat template ends a prompt with the token that
begins the answer: a call of the first tool that it knows, or what is said behind a tool's result.
Prompts of coding agents have tens of thousands of tokens, so its tokenizer has merges.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).parents[2]
PROOF = "proof.txt"  # the file that the called tool writes
WRITTEN = "the tool ran"
SAID = "The file is written."  # behind the tool's result
COMMAND = f"echo {WRITTEN} > {PROOF}"
CALLS: Mapping[str, Mapping[str, Any]] = {
    "Bash": {"command": COMMAND, "description": "Write the file"},  # Claude Code
    "exec_command": {"cmd": COMMAND},  # Codex
    "shell": {"command": ["bash", "-c", COMMAND]},
    "shell_command": {"command": COMMAND},
    "bash": {"command": COMMAND, "description": "Write the file"},  # opencode
    "weather": {"city": "Ghent"},  # the scripts beside this file
}
EDIT = ("<|edit|>", PROOF, "\n```\n" + WRITTEN, "\n```\n")  # aider has no tools: files are text
PLAIN = ("<|plain|>", "Hello", " there", ".")
AFTER = ("<|after|>", "The file", " is", " written.")
END, START = "<|im_end|>", "<|im_start|>"
VOCAB_SIZE, HIDDEN_SIZE, MAX_TOKENS = 4096, 64, 65_536
SURE = 10.0  # of the head's rows: a probability of nearly 1

TEMPLATE = """\
{%- if tools %}<|im_start|>system
You may call these functions by <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% set last = namespace(start='<|plain|>') %}
{%- for tool in tools or [] %}
{%- if last.start == '<|plain|>' and tool.function.name in KNOWN %}
{%- set last.start = '<|call:' + tool.function.name + '|>' %}
{%- endif %}{% endfor %}
{%- if '*file listing*' in messages[0].content %}{% set last.start = '<|edit|>' %}{% endif %}
{%- if messages | selectattr('role', 'equalto', 'tool') | list %}
{%- set last.start = '<|after|>' %}{% endif %}
{{- last.start }}{% endif %}"""


def chains() -> list[tuple[str, ...]]:
    """The answers, each with the token that begins it."""
    calls = [
        (
            f"<|call:{name}|>",
            f'<tool_call>\n{{"name": "{name}", ',
            f'"arguments": {json.dumps(arguments)}',
            "}\n</tool_call>",
        )
        for name, arguments in CALLS.items()
    ]
    return [PLAIN, AFTER, EDIT, *calls]


def write_agent(folder: Path) -> None:
    """The folder as the hub would have it."""
    tokenizer = trained()
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=HIDDEN_SIZE,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=MAX_TOKENS,
            eos_token_id=tokenizer.token_to_id(END),
            bos_token_id=None,
        )
    )
    teach(network, tokenizer)
    network.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = TEMPLATE.replace("KNOWN", repr(tuple(CALLS)))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def trained() -> Tokenizer:
    """Of the project's own documents; each part of an answer is a word that no text is cut into."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    pages = sorted((ROOT / "docs").glob("**/*.md"))
    tokenizer.train_from_iterator((page.read_text(encoding="utf-8") for page in pages), trainer)
    written = json.loads(tokenizer.to_str())
    for word in sorted({in_vocabulary(part) for chain in chains() for part in chain[1:]}):
        written["model"]["vocab"].setdefault(word, len(written["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(written))
    tokenizer.add_special_tokens([START, END, *(chain[0] for chain in chains())])
    return tokenizer


def in_vocabulary(part: str) -> str:
    """A part as the vocabulary spells it, a character for each byte; special tokens as they are."""
    if part.startswith("<|"):
        return part
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return "".join(piece for piece, _ in whole.pre_tokenize_str(part))


@torch.no_grad()
def teach(network: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Write the weights: the layer adds nothing, and the head knows what follows each token."""
    layer = network.model.layers[0]
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()
    embeddings, head = network.model.embed_tokens.weight, network.lm_head.weight
    embeddings.zero_()
    embeddings[:, 0] = 1.0
    head.zero_()
    head[tokenizer.token_to_id(END), 0] = SURE
    for number, (part, then) in enumerate(pairs(), start=1):
        direction = torch.zeros(HIDDEN_SIZE)
        direction[number] = 1.0
        embeddings[tokenizer.token_to_id(in_vocabulary(part))] = direction
        head[tokenizer.token_to_id(in_vocabulary(then))] += SURE * direction


def pairs() -> list[tuple[str, str]]:
    """Each part of the answers with the one that follows it, which is the same in every answer."""
    found: dict[str, str] = {}
    for chain in chains():
        for part, then in zip(chain, (*chain[1:], END), strict=True):
            assert found.setdefault(part, then) == then
    assert len(found) < HIDDEN_SIZE
    return list(found.items())
