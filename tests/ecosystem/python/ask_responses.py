"""`openai`'s Responses API, whole, streamed and parsed; openai-agents, pydantic-ai, LangChain."""

import asyncio
import os
from typing import Annotated, Any

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from openai.types.responses import Response
from pydantic import BaseModel, Field
from pydantic_ai import Agent as TypedAgent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel as TypedResponses
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

URL = os.environ["ATTENDANT_URL"]
BASE = f"{URL}/v1"
MODEL = "tiny-calls"
ASKED: dict[str, Any] = {
    "model": MODEL,
    "input": "Hello",
    "temperature": 0,
    "max_output_tokens": 24,
    "store": False,
}


class Person(BaseModel):
    """What an answer has to be; bounded, as random weights end no text by themselves."""

    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=150)


def check_whole(client: openai.OpenAI) -> None:
    """Answers are those of the library's own types; a stream builds the whole answer."""
    answer = client.responses.create(instructions="Be brief.", **ASKED)
    Response.model_validate(answer.model_dump(), strict=False)
    assert answer.status in ("completed", "incomplete")
    with client.responses.stream(instructions="Be brief.", **ASKED) as stream:
        events = list(stream)
    built: Any = events[-1].response  # the library's helper knows none that is cut
    assert built.output_text == answer.output_text
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(numbers)
    told = client.responses.create(
        top_logprobs=2, include=["message.output_text.logprobs"], **ASKED
    )
    assert told.output[0].content[0].logprobs


def check_forms(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(text_format=Person, **ASKED | {"max_output_tokens": 200})
    assert isinstance(parsed.output_parsed, Person)
    tool = openai.pydantic_function_tool(Person, name="person")["function"]
    called = client.responses.create(
        tools=[{"type": "function", **tool}],
        tool_choice={"type": "function", "name": "person"},
        **ASKED | {"max_output_tokens": 200},
    )
    (call,) = [item for item in called.output if item.type == "function_call"]
    Person.model_validate_json(call.arguments)
    again = client.responses.create(
        tools=[{"type": "function", **tool}],
        **ASKED
        | {
            "input": [
                {"role": "user", "content": "Hello"},
                *called.output,
                {"type": "function_call_output", "call_id": call.call_id, "output": "kept"},
            ]
        },
    )
    assert again.usage is not None
    assert again.usage.input_tokens > 0


def check_errors(client: openai.OpenAI) -> None:
    for fields, param in (
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"temperature": -1}, "temperature"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    ):
        try:
            client.responses.create(**ASKED | fields)
        except openai.BadRequestError as error:
            assert error.param == param, error
        else:
            raise AssertionError(f"no error for {fields}")


@function_tool  # type: ignore[untyped-decorator]  # in another environment
def person(age: Annotated[int, Field(ge=0, le=150)]) -> str:
    """Keep a person."""
    return f"kept {age}"


async def check_agents() -> None:
    """openai-agents: whole and streamed; a function that must be called is."""
    set_tracing_disabled(disabled=True)
    client = openai.AsyncOpenAI(base_url=BASE, api_key="none", max_retries=0)
    model = OpenAIResponsesModel(model=MODEL, openai_client=client)
    settings = ModelSettings(temperature=0, max_tokens=200)
    agent = Agent(
        name="short",
        instructions="Be brief.",
        model=model,
        model_settings=settings,
        output_type=Person,  # with which random weights end: an answer that is cut is an error
    )
    found = await Runner.run(agent, "Hello")
    streamed = Runner.run_streamed(agent, "Hello")
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == found.final_output
    forced = ModelSettings(temperature=0, max_tokens=200, tool_choice="required")
    caller = Agent(
        name="caller",
        model=model,
        model_settings=forced,
        tools=[person],
        tool_use_behavior="stop_on_first_tool",
    )
    assert str((await Runner.run(caller, "Hello")).final_output).startswith("kept ")


async def check_typed() -> None:
    """pydantic-ai over both APIs."""
    responses = TypedResponses(MODEL, provider=OpenAIProvider(base_url=BASE, api_key="none"))
    messages = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key="none"))
    settings: Any = {"temperature": 0, "max_tokens": 24}
    for model in (responses, messages):
        agent = TypedAgent(model, model_settings=settings)
        assert (await agent.run("Hello")).output is not None
        async with agent.run_stream("Hello") as streamed:
            assert await streamed.get_output() is not None


def check_langchain() -> None:
    own: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 24}
    responses = ChatOpenAI(base_url=BASE, api_key="none", use_responses_api=True, **own)
    messages = ChatAnthropic(base_url=URL, api_key="none", **own)
    for model in (responses, messages):
        assert model.invoke("Hello").content is not None
        assert list(model.stream("Hello"))


if __name__ == "__main__":
    own = openai.OpenAI(base_url=BASE, api_key="none", max_retries=0)
    check_whole(own)
    check_forms(own)
    check_errors(own)
    asyncio.run(check_agents())
    asyncio.run(check_typed())
    check_langchain()
