"""`/tokenize`, `/detokenize` and `/tokenizer_info`, as vLLM has them and lm-eval asks for them."""

from typing import Any, ClassVar
from urllib.parse import parse_qs

import msgspec

from service.calls.conversation import Conversation
from service.calls.tokens import Detokenize, Detokenized, Tokenize, Tokenized
from service.http.openai.chat_fields import CHAT_FIELDS, ChatMessage, ChatRequest, Tool
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.fields import MAX_ID
from service.http.shared.models import find_model, name_of
from service.http.shared.names import names_of
from service.http.shared.paths import DETOKENIZE, TOKENIZE
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

BASES = ("", "/v1", "/openai/v1", "/models/{model}", "/models/{model}/v1")


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """The body, as vLLM has it: a text, or messages of which the chat template makes one."""

    REFUSED: ClassVar[Refusals] = REFUSALS["tokens"]

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    # Of messages.
    tools: list[Tool] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None

    @property
    def conversation(self) -> Conversation | None:
        """The messages, as a chat has them. Raises `HttpError`."""
        if self.messages is None:
            return None
        if self.prompt is not None:
            raise invalid("messages stand in place of prompt, expected one of them", "messages")
        if self.add_special_tokens:
            raise unsupported("add_special_tokens", "the chat template writes all that there are")
        chat = ChatRequest(
            messages=self.messages,
            tools=self.tools,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            chat_template=self.chat_template,
            chat_template_kwargs=self.chat_template_kwargs,
            documents=self.documents,
            reasoning_effort=self.reasoning_effort,
        )
        chat.check()
        return chat.conversation


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """The body, as vLLM has it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["texts of tokens"]

    tokens: list[int]
    model: str | None = None


def token_routes() -> tuple[Route, ...]:
    return tuple(
        route
        for base in BASES
        for route in (
            Route("POST", f"{base}/tokenize", tokenize, TOKENIZE, (TokenizeRequest,)),
            Route("POST", f"{base}/detokenize", detokenize, DETOKENIZE, (DetokenizeRequest,)),
            Route("GET", f"{base}/tokenizer_info", show_tokenizer, DETOKENIZE),
        )
    )


async def tokenize(request: Request) -> Reply:
    asked = await request.json(TokenizeRequest)
    names = CHAT_FIELDS if asked.messages is not None else {}
    request.named = names_of("openai", Tokenize, names, single=("texts",))
    conversation = await request.work(lambda: asked.conversation)
    if conversation is None and asked.prompt is None:
        raise invalid("prompt is missing", "prompt")
    name = await name_of(request, asked.model)
    call = Tokenize(
        model=name,
        texts=() if asked.prompt is None else (asked.prompt,),
        omit_special_tokens=asked.add_special_tokens is False,
        conversation=conversation,
    )
    tokenized: Tokenized = await request.ask(TOKENIZE, call)
    (found,) = tokenized.results
    max_tokens = (await find_model(request, name)).max_tokens

    def answer() -> dict[str, Any]:
        values: dict[str, Any] = {
            "count": found.num_tokens,
            "max_model_len": max_tokens,
            "tokens": [token.id for token in found.tokens],
        }
        if asked.return_token_strs:
            values["token_strs"] = [token.piece for token in found.tokens]
        return values

    return await request.answer(answer, found.num_tokens)


async def detokenize(request: Request) -> Reply:
    asked = await request.json(DetokenizeRequest)
    request.named = names_of("openai", Detokenize)
    name = await name_of(request, asked.model)

    def read() -> Detokenize:
        odd = [token_id for token_id in asked.tokens if not 0 <= token_id <= MAX_ID]
        if odd:
            raise invalid(f"tokens has {odd[0]}, expected 0 to {MAX_ID}", "tokens")
        return Detokenize(model=name, token_ids=asked.tokens)

    answer: Detokenized = await request.ask(DETOKENIZE, await request.work(read))
    return Reply.json({"prompt": answer.text})


async def show_tokenizer(request: Request) -> Reply:
    """Facts of a tokenizer that lm-eval reads: above all the token that ends a text."""
    named = parse_qs(request.query).get("model", [None])[0]
    model = await find_model(request, await name_of(request, named))
    end = None
    if model.eos_token_ids:
        call = Detokenize(model=model.name, token_ids=model.eos_token_ids[:1])
        answer: Detokenized = await request.ask(DETOKENIZE, call)
        end = answer.text
    return Reply.json(
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": end,
            "bos_token": None,
            "pad_token": None,
            "chat_template": None,
            "model_max_length": model.max_tokens,
        }
    )
