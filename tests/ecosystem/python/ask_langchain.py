"""`langchain-openai`: its language model, streams, batches, embeddings and chats."""

import asyncio
import math
import os
from typing import Literal

import openai
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ConfigDict, Field, SecretStr

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
KEY = SecretStr("none")
ROUNDING = 1e-5  # a text in a batch and alone
TEXTS = ["win a prize", "lunch"]
METHODS: tuple[Literal["json_schema", "function_calling"], ...] = (
    "json_schema",
    "function_calling",
)


def check_language_model() -> None:
    model = OpenAI(base_url=BASE, api_key=KEY, model="tiny-gpt", temperature=0, max_tokens=12)
    whole = model.invoke("The function")
    assert whole
    assert "".join(model.stream("The function")) == whole
    assert model.batch(["The function", "A list"])[0] == whole
    assert asyncio.run(model.ainvoke("The function")) == whole
    generation = model.generate(["The function"])
    assert generation.llm_output is not None
    assert generation.llm_output["token_usage"]["completion_tokens"] > 0


def check_embeddings() -> None:
    """`check_embedding_ctx_length=False` sends texts; else it sends ids of another tokenizer."""
    embeddings = OpenAIEmbeddings(
        base_url=BASE, api_key=KEY, model="tiny-embed", check_embedding_ctx_length=False
    )
    vectors = embeddings.embed_documents(TEXTS)
    assert len(vectors) == len(TEXTS)
    assert math.dist(vectors[0], embeddings.embed_query(TEXTS[0])) < ROUNDING


def check_chats() -> None:
    chat = ChatOpenAI(
        base_url=BASE, api_key=KEY, model="tiny-chat", temperature=0, max_completion_tokens=12
    )
    messages = [("system", "Be brief."), ("human", "Hello")]
    answer = chat.invoke(messages)
    assert isinstance(answer.content, str)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] > 0
    assert "".join(str(each.content) for each in chat.stream(messages)) == answer.content
    assert asyncio.run(chat.ainvoke(messages)).content == answer.content


class Person(BaseModel):
    """What an answer has to be; bounded, as random weights end no text by themselves.

    Without `forbid`, the schema of a function allows any number of further properties.
    """

    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=150)


def check_structured_output() -> None:
    chat = ChatOpenAI(base_url=BASE, api_key=KEY, model="tiny-calls", max_completion_tokens=200)
    for method in METHODS:
        structured = chat.with_structured_output(Person, method=method)
        person = structured.invoke("Ann is 30")
        assert isinstance(person, Person), f"{method}: {person!r}"


def check_chat_is_refused() -> None:
    chat = ChatOpenAI(base_url=BASE, api_key=KEY, model="tiny-gpt")
    try:
        chat.invoke("hello")
    except openai.BadRequestError as error:
        assert error.code == "no_chat_template"
    else:
        raise AssertionError("a model without a chat template answered a chat")


if __name__ == "__main__":
    check_language_model()
    check_embeddings()
    check_chats()
    check_structured_output()
    check_chat_is_refused()
