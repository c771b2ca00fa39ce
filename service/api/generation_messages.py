"""Ways between generation's messages and records that the names of fields alone do not give.

A prompt is one of several fields, and so is a grammar; of parameters it is known which of them a
message has, as a model may default others.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from attendant.v1 import generation_pb2, text_pb2
from google.protobuf.descriptor import Descriptor

from service.api.codec import Own, fields_of
from service.calls.conversation import Conversation, read_call, read_message, read_object
from service.calls.generation import Prompt
from service.calls.sampling import Sampling
from service.grammars.form import take_grammar

DEFAULTS = Sampling()
_json = partial(json.dumps, ensure_ascii=False)


def own_fields(request: Descriptor) -> dict[str, Own]:
    """Both ways of a request's fields, by the names that its record has.

    Raises `TypeError` where parameters have other names than their record's.
    """
    if "prompt" in request.oneofs_by_name:
        fields_of(request.fields_by_name["sampling_params"].message_type, Sampling, ("named",))
        sampling = Own(_sampling_in, _fields_of_sampling)
        return {"prompt": Own(prompt_in, _fields_of_prompt), "sampling_params": sampling}
    if "conversation" in request.fields_by_name:
        return {"conversation": Own(conversation_in, _fields_of_prompt)}
    return {}


def prompt_in(message: generation_pb2.GenerateRequest) -> Prompt | None:
    """The prompt of a message; token ids as they came, which may be too many to look at."""
    kind = message.WhichOneof("prompt")
    if kind == "conversation":
        return conversation_of(message.conversation)
    if kind is None:
        return None
    prompt: Prompt = message.text if kind == "text" else message.token_ids.ids
    return prompt


def conversation_in(message: text_pb2.TokenizeRequest) -> Conversation | None:
    """The conversation of a message; None where it has none. Raises `InvalidArgument`."""
    return conversation_of(message.conversation) if message.HasField("conversation") else None


def conversation_of(message: generation_pb2.Conversation) -> Conversation:
    """Raises `InvalidArgument` for JSON that is no object, and for what `Conversation` refuses."""
    return Conversation(
        messages=[_message(each, f"messages[{n}]") for n, each in enumerate(message.messages)],
        tools=[read_object(f"tools[{n}]", text) for n, text in enumerate(message.tools)],
        variables=read_object("template_variables", message.template_variables or "{}"),
        needed_variables=list(message.needed_variables),
        has_answer_prompt=not message.omit_answer_prompt,
        continues_last=message.continue_final_message,
    )


def _message(message: generation_pb2.ChatMessage, field: str) -> dict[str, Any]:
    return read_message(
        field,
        message.role,
        message.content if message.HasField("content") else None,
        name=message.name,
        tool_call_id=message.tool_call_id,
        reasoning_content=message.reasoning_content,
        tool_calls=[
            read_call(f"{field}.tool_calls[{index}]", call.id, call.name, call.arguments)
            for index, call in enumerate(message.tool_calls)
        ],
    )


def _sampling_in(request: generation_pb2.GenerateRequest) -> Sampling:
    """The parameters that a request has, and its grammar. Raises `InvalidArgument`."""
    values: dict[str, Any] = {}
    for field, value in request.sampling_params.ListFields():
        if field.message_type is not None:
            values[field.name] = list(value.texts) if field.name == "choice" else dict(value)
        else:
            values[field.name] = tuple(value) if field.is_repeated else value
    if (grammar := take_grammar(values)) is not None:
        values["grammar"] = grammar
    return Sampling.of(values)


def _fields_of_prompt(prompt: Prompt | None) -> dict[str, Any]:
    """The field that a prompt is in; none for no prompt."""
    if prompt is None:
        return {}
    if isinstance(prompt, str):
        return {"text": prompt}
    if not isinstance(prompt, Conversation):
        return {"token_ids": {"ids": prompt}}
    return {
        "conversation": {
            "messages": [_fields_of_message(each) for each in prompt.messages],
            "tools": [_json(each) for each in prompt.tools],
            "template_variables": _json(prompt.variables) if prompt.variables else "",
            "needed_variables": prompt.needed_variables,
            "omit_answer_prompt": not prompt.has_answer_prompt,
            "continue_final_message": prompt.continues_last,
        }
    }


def _fields_of_message(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": call["id"], "name": of["name"], "arguments": _json(of["arguments"])}
        for call in message.get("tool_calls", ())
        for of in (call["function"],)
    ]
    return {**message, "tool_calls": calls}


def _fields_of_sampling(sampling: Sampling) -> dict[str, Any]:
    """The parameters that are named or other than their defaults, and the grammar."""
    values = {
        name: value
        for name in Sampling.__struct_fields__
        if (value := getattr(sampling, name)) != getattr(DEFAULTS, name) or name in sampling.named
    }
    form, _ = values.pop("grammar", None), values.pop("named", None)
    if form is not None:
        values[form.kind] = {"texts": form.choices} if form.kind == "choice" else form.text
    return {"sampling_params": values} if values else {}
