"""From a Hugging Face folder to a served answer, which is what transformers writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
import transformers
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import generation_pb2_grpc, text_pb2, text_pb2_grpc
from tokenizers import Tokenizer

from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from tests.e2e.server import ServerProcess
from tests.fakes.sentencepiece import sentencepiece_tokenizer
from tests.fakes.sessions import PATIENCE_S

NUM_TOKENS = 24
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = ("the cat sat on the mat", "once upon a time", "ünusual 猫 letters")
# One of each kind: plain; norms of heads; windows, softcaps and four norms; norms behind, untied.
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 16},
    "olmo2": {},
}


def tokenizer() -> Tokenizer:
    return sentencepiece_tokenizer("<|im_start|>", "<|im_end|>")


def write_folder(kind: str, folder: Path) -> Any:
    """A folder as the hub has it; the network that is in it."""
    torch.manual_seed(2)
    library = tokenizer()
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=library.get_vocab_size(),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=2,
        **KINDS[kind],
    )
    config._attn_implementation = "eager"
    network = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    network.train(False)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    network.save_pretrained(folder)
    library.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return network


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A repository with a model of each kind, and the networks of transformers."""
    folder, found = tmp_path_factory.mktemp("llamas"), {}
    for kind in KINDS:
        found[kind] = write_folder(kind, folder / "hub" / kind)
        save_checkpoint(load_checkpoint(folder / "hub" / kind), folder / "checkpoints" / kind)
        checkpoint = load_checkpoint(folder / "checkpoints" / kind)
        export_any(checkpoint, ExportSettings(kind, folder / "repository", "fp32"))
    return folder / "repository", found


@pytest.fixture(scope="module")
def channel(networks: tuple[Path, dict[str, Any]]) -> Iterator[grpc.Channel]:
    with ServerProcess(networks[0]) as server, grpc.insecure_channel(server.address) as opened:
        yield opened


def written_by(network: Any, ids: list[int]) -> list[int]:
    """Greedy tokens of transformers, its end included."""
    ends = [2, tokenizer().token_to_id("<|im_end|>")]
    prompt = torch.tensor([ids])
    found: list[int] = network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),  # OLMo's padding has the id of `<s>` here
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=ends,
    )[0].tolist()
    return found[len(ids) :]


def answered(channel: grpc.Channel, kind: str, **prompts: Any) -> Any:
    """A call under way, whose `result()` is the answer."""
    params = pb.SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS)
    request = pb.GenerateRequest(model=kind, sampling_params=params, **prompts)
    stub = generation_pb2_grpc.GenerationServiceStub(channel)
    return stub.GenerateUnary.future(request, timeout=PATIENCE_S)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_go_on_as_in_transformers(
    channel: grpc.Channel, networks: tuple[Path, dict[str, Any]], kind: str
) -> None:
    """All at once, so that they share steps."""
    library = tokenizer()
    calls = [answered(channel, kind, text=text) for text in TEXTS]
    for text, call in zip(TEXTS, calls, strict=True):
        expected = written_by(networks[1][kind], library.encode(text).ids)
        assert list(call.result().results[0].token_ids) == expected


def test_a_conversation_has_one_beginning_and_ends_with_its_turn(
    channel: grpc.Channel, networks: tuple[Path, dict[str, Any]]
) -> None:
    """As transformers renders and reads it: `<s>` once, and `<|im_end|>` among the ends."""
    texts = text_pb2_grpc.TextServiceStub(channel)
    models = texts.ListModels(text_pb2.ListModelsRequest()).models
    ends = {model.name: list(model.eos_token_ids) for model in models}
    library = tokenizer()
    assert set(ends["llama"]) == {2, library.token_to_id("<|im_end|>")}
    said = [pb.ChatMessage(role="user", content="the cat sat")]
    rendered = "<s><|im_start|>user\nthe cat sat<|im_end|>\n<|im_start|>assistant\n"
    ids = library.encode(rendered, add_special_tokens=False).ids
    answer = answered(channel, "llama", conversation=pb.Conversation(messages=said)).result()
    assert answer.usage.prompt_tokens == len(ids)
    assert list(answer.results[0].token_ids) == written_by(networks[1]["llama"], ids)
