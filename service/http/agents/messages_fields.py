"""The body of `/v1/messages`, and the chat that it asks for."""

from typing import Any, ClassVar

import msgspec

from service.http.agents.turns import Turns, check_role
from service.http.numbers import Whole
from service.http.openai.chat_fields import ChatMessage, ChatRequest, Function, Tool
from service.http.shared.output_form import ResponseFormat, SchemaFormat
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

ROLES = ("user", "assistant", "system")
# Begins a block that Claude Code puts first. It has a number that differs in each request: with it
# no two prompts would have a beginning in common that a cache could hold.
BILLING = "x-anthropic-billing-header"
CALL_ID = "toolu_"  # before the ids of calls, which chat templates bound in length
CHOICES = ("auto", "any", "tool", "none")
# Fields that a block of each type must have, and those among them that may be empty.
NEEDED = {
    "text": ("text",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
}
MAY_BE_EMPTY = ("text", "thinking", "input")


class Block(msgspec.Struct, kw_only=True):
    """A block of content."""

    type: str
    text: str | None = None
    thinking: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | list[Block] | None" = None
    is_error: bool | None = None

    def check(self, path: str) -> None:
        """Raise `HttpError` unless the block has the fields of its type."""
        for name in NEEDED.get(self.type, ()):
            value = getattr(self, name)
            if value is None or (value == "" and name not in MAY_BE_EMPTY):
                has = "is missing" if value is None else "is empty"
                raise invalid(
                    f"{path}.{name} {has}, expected one, as a block of the type {self.type} has",
                    f"{path}.{name}",
                )


class Message(msgspec.Struct):
    """One message."""

    role: str
    content: str | list[Block]


class AgentTool(msgspec.Struct, kw_only=True):
    """A function, or a tool of the provider's own, which has a type."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def is_function(self) -> bool:
        return self.type in (None, "custom")


class Choice(msgspec.Struct, kw_only=True):
    """Which function is called."""

    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, kw_only=True):
    """Whether the model thinks before its answer."""

    type: str
    budget_tokens: Whole | None = None


class OutputForm(msgspec.Struct, kw_only=True):
    """The form of the answer."""

    type: str
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct, kw_only=True):
    """Effort and form of the answer."""

    effort: str | None = None
    format: OutputForm | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """The body of a count, and what it shares with a request for an answer."""

    REFUSED: ClassVar[Refusals] = REFUSALS["counted messages"]

    model: str | None = None
    messages: list[Message]
    system: str | list[Block] | None = None
    tools: list[AgentTool] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    @property
    def left_out(self) -> list[str]:
        """Paths of the tools that only the provider of the API has, which are ignored."""
        tools = enumerate(self.tools or ())
        return [f"tools[{place}]" for place, tool in tools if not tool.is_function]

    def chat(self, turns: Turns) -> ChatRequest:
        """The request as a chat, whose messages are put into `turns`. Raises `HttpError`."""
        if self.system is not None and (text := _system(self.system)):
            turns.add("system", ChatMessage(role="system", content=text))
        for place, message in enumerate(self.messages):
            _add(turns, f"messages[{place}]", message)
        last = turns.messages[-1] if turns.messages else None
        continues = last is not None and last.role == "assistant" and not last.tool_calls
        tools: list[Tool] = []
        for place, tool in enumerate(self.tools or ()):
            if tool.is_function:
                turns.paths[f"tools[{len(tools)}].function.parameters"] = (
                    f"tools[{place}].input_schema"
                )
                turns.paths[f"tools[{len(tools)}].function"] = f"tools[{place}]"
                function = Function(tool.name, tool.description, tool.input_schema, tool.strict)
                tools.append(Tool(function))
        choice = self.tool_choice
        turns.paths |= {"thinking_token_budget": "thinking.budget_tokens"}
        return ChatRequest(
            model=self.model,
            messages=turns.messages,
            tools=tools or None,
            tool_choice=self._choice(tools),
            parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
            chat_template_kwargs=self._variables() or None,
            thinking_token_budget=self._budget,
            response_format=self._form(turns),
            continue_final_message=continues or None,
        )

    def _choice(self, tools: list[Tool]) -> object:
        choice = self.tool_choice
        if choice is None:
            return None
        if choice.type not in CHOICES:
            raise invalid(
                f"tool_choice.type is '{choice.type[:64]}', expected one of {', '.join(CHOICES)}",
                "tool_choice.type",
            )
        if choice.type != "tool":
            return {"any": "required"}.get(choice.type, choice.type)
        if choice.name not in {tool.function.name for tool in tools}:
            raise invalid(
                f"tool_choice.name is '{choice.name[:64]}', expected one of the functions in tools",
                "tool_choice.name",
            )
        return {"type": "function", "function": {"name": choice.name}}

    @property
    def _budget(self) -> Whole | None:
        """The most tokens of thoughts. Raises `HttpError`."""
        budget = self.thinking.budget_tokens if self.thinking is not None else None
        if budget is not None and budget < 0:
            raise invalid(
                f"thinking.budget_tokens is {budget}, expected 0 or more",
                "thinking.budget_tokens",
            )
        return budget

    def _variables(self) -> dict[str, Any]:
        variables: dict[str, Any] = {}
        if self.thinking is not None and self.thinking.type in ("enabled", "disabled"):
            thinks = self.thinking.type == "enabled"
            variables |= dict.fromkeys(("enable_thinking", "thinking"), thinks)
        elif self.thinking is not None and self.thinking.type != "adaptive":
            raise invalid(
                f"thinking.type is '{self.thinking.type[:64]}', expected enabled, disabled or "
                "adaptive",
                "thinking.type",
            )
        if self.output_config is not None and self.output_config.effort:
            variables["reasoning_effort"] = self.output_config.effort
        return variables

    def _form(self, turns: Turns) -> ResponseFormat | None:
        form = self.output_config.format if self.output_config else None
        if form is None:
            return None
        turns.paths["response_format"] = "output_config.format"
        if form.type != "json_schema":
            raise invalid(
                f"output_config.format.type is '{form.type[:64]}', expected json_schema",
                "output_config.format.type",
            )
        if form.schema is None:
            raise invalid(
                "output_config.format.schema is missing, expected a JSON schema",
                "output_config.format.schema",
            )
        return ResponseFormat("json_schema", SchemaFormat(schema=form.schema))


class MessagesRequest(CountRequest, kw_only=True):
    """The body, as Anthropic has it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["messages"]

    max_tokens: Whole
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Whole | None = None
    stream: bool | None = None

    def chat(self, turns: Turns) -> ChatRequest:
        asked = super().chat(turns)
        asked.stop = self.stop_sequences
        for name in ("max_tokens", "temperature", "top_p", "top_k"):
            setattr(asked, name, getattr(self, name))
        return asked


def _system(system: str | list[Block]) -> str:
    if isinstance(system, str):
        return system
    texts = [_text(block, f"system[{place}]") for place, block in enumerate(system)]
    return "\n\n".join(text for text in texts if text and not text.startswith(BILLING))


def _add(turns: Turns, path: str, message: Message) -> None:
    check_role(message.role, ROLES, path)
    content = message.content
    blocks = [Block(type="text", text=content)] if isinstance(content, str) else content
    places = [
        (path if isinstance(content, str) else f"{path}.content[{place}]", block)
        for place, block in enumerate(blocks)
    ]
    if message.role == "assistant":
        for place, block in places:
            _say(turns, place, block)
        if not places:
            turns.say(path, "")
        return
    texts = []
    for place, block in places:  # results go first: they answer the message before
        if block.type == "tool_result":
            block.check(place)
            turns.result(place, _call_id(block.tool_use_id), _result(block, place))
        else:
            texts.append(_text(block, place))
    if texts or not places:
        is_first = not turns.messages
        role = "system" if message.role == "system" and is_first else "user"
        turns.add(path, ChatMessage(role=role, content="\n".join(texts)))


def _say(turns: Turns, path: str, block: Block) -> None:
    """A block of the assistant's."""
    block.check(path)
    if block.type == "tool_use":
        turns.call(path, _call_id(block.id), block.name or "", block.input or {}, "input")
    elif block.type == "thinking":
        turns.think(path, block.thinking or "")
    elif block.type != "redacted_thinking":
        turns.say(path, _text(block, path))


def _result(block: Block, path: str) -> str:
    content = block.content
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        parts = [_text(part, f"{path}.content[{n}]") for n, part in enumerate(content)]
        text = "\n".join(parts)
    return f"Error: {text}" if block.is_error else text


def _text(block: Block, path: str) -> str:
    if block.type != "text":
        raise unsupported(
            f"{path}.type", f"it is '{block.type[:64]}', and the model reads texts alone"
        )
    block.check(path)
    return block.text or ""


def _call_id(told: str | None) -> str:
    """The id of a call as the chat has it."""
    return (told or "").removeprefix(CALL_ID)
