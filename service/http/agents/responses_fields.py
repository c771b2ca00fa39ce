"""The body of `/v1/responses`, and the chat that it asks for."""

from typing import Any, ClassVar

import msgspec

from service.http.agents.turns import Turns, check_role
from service.http.numbers import Whole
from service.http.openai.chat_fields import ChatMessage, ChatRequest, Function, Tool
from service.http.shared.output_form import ResponseFormat, SchemaFormat
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

ROLES = ("user", "system", "developer", "assistant")
CHOICES = ("auto", "none", "required")
LOGPROBS, ENCRYPTED = "message.output_text.logprobs", "reasoning.encrypted_content"
# Values of `include`; all but the first two are of tools and inputs that no request here has.
INCLUDED = (
    *(LOGPROBS, ENCRYPTED, "file_search_call.results", "web_search_call.results"),
    *("web_search_call.action.sources", "message.input_image.image_url"),
    *("computer_call_output.output.image_url", "code_interpreter_call.outputs"),
)
PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")
STATELESS = "nothing is kept from one request to the next: send the items themselves"
# The way out for clients that replay an answer by its id.
BY_ID = f"{STATELESS}, as the AI SDK does with store: false in providerOptions.openai"


class Part(msgspec.Struct, kw_only=True):
    """A part of an item's content."""

    type: str
    text: str = ""
    refusal: str = ""


class Item(msgspec.Struct, kw_only=True):
    """An item of the conversation; a message may come without its type."""

    type: str = "message"
    role: str = ""
    content: str | list[Part] | None = None
    id: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None


class AgentTool(msgspec.Struct, kw_only=True):
    """A function, or a tool of the provider's own."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Reasoning(msgspec.Struct, kw_only=True):
    """Effort of the thoughts before an answer, and their tokens at most."""

    effort: str | None = None
    max_tokens: Whole | None = None


class TextForm(msgspec.Struct, kw_only=True):
    """The form of the answer."""

    type: str
    name: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(msgspec.Struct, kw_only=True):
    """Form and style of the answer."""

    format: TextForm | None = None
    verbosity: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The body, as OpenAI has it, and what vLLM and SGLang add of sampling."""

    REFUSED: ClassVar[Refusals] = REFUSALS["responses"]

    model: str | None = None
    input: str | list[Item]
    instructions: str | None = None
    max_output_tokens: Whole | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Whole | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    # Those of chats.
    top_k: Whole | None = None
    min_p: float | None = None
    seed: Whole | None = None
    stop: str | list[str] | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    priority: Whole | None = None
    cache_salt: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def declared(self) -> list[AgentTool]:
        """The tools, functions and others. Raises `HttpError`."""
        return [_tool(values, f"tools[{place}]") for place, values in enumerate(self.tools or ())]

    @property
    def left_out(self) -> list[str]:
        """Paths of the tools that are no functions, which are ignored."""
        return [f"tools[{n}]" for n, tool in enumerate(self.declared) if tool.type != "function"]

    @property
    def tells_encrypted(self) -> bool:
        """Whether thoughts come in the field that clients send back."""
        return ENCRYPTED in (self.include or ())

    def chat(self, turns: Turns) -> ChatRequest:
        """The request as a chat, whose messages are put into `turns`. Raises `HttpError`."""
        self._check()
        if self.instructions:
            turns.add("instructions", ChatMessage(role="system", content=self.instructions))
        items = self.input if not isinstance(self.input, str) else [_said(self.input)]
        for place, item in enumerate(items):
            _add(turns, "input" if isinstance(self.input, str) else f"input[{place}]", item)
        if not turns.messages:
            raise invalid("input is empty, expected a text, or one item or more", "input")
        tools = self._functions(turns)
        has_logprobs = LOGPROBS in (self.include or ()) or self.top_logprobs
        asked = ChatRequest(
            model=self.model,
            messages=turns.messages,
            tools=tools or None,
            tool_choice=self._choice(tools),
            parallel_tool_calls=self.parallel_tool_calls,
            thinking_token_budget=self.reasoning.max_tokens if self.reasoning else None,
            response_format=self._form(turns),
            chat_template_kwargs=self._variables() or None,
            max_completion_tokens=self.max_output_tokens,
            logprobs=bool(has_logprobs) or None,
            top_logprobs=self.top_logprobs if has_logprobs else None,
            stop=self.stop,
            priority=self.priority,
        )
        turns.paths |= {"thinking_token_budget": "reasoning.max_tokens"}
        turns.paths["max_tokens"] = turns.paths["max_completion_tokens"] = "max_output_tokens"
        for name in (
            *("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty"),
            *("frequency_penalty", "presence_penalty", "cache_salt"),
        ):
            setattr(asked, name, getattr(self, name))
        return asked

    def _check(self) -> None:
        if self.truncation not in (None, "disabled"):
            raise unsupported("truncation", "a prompt that is too long is refused")
        for place, name in enumerate(self.include or ()):
            if name not in INCLUDED:
                field = f"include[{place}]"
                raise invalid(
                    f"{field} is '{name[:64]}', expected one of {', '.join(INCLUDED)}", field
                )

    @property
    def _allowed(self) -> list[object] | None:
        """The names that `allowed_tools` has; None where the request has no such choice."""
        choice = self.tool_choice
        if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
            return None
        tools = choice.get("tools")
        listed = tools if isinstance(tools, list) else []
        return [each.get("name") for each in listed if isinstance(each, dict)]

    def _functions(self, turns: Turns) -> list[Tool]:
        tools: list[Tool] = []
        allowed = self._allowed
        for place, tool in enumerate(self.declared):
            if tool.type == "function" and (allowed is None or tool.name in allowed):
                turns.paths[f"tools[{len(tools)}].function"] = f"tools[{place}]"
                function = Function(tool.name, tool.description, tool.parameters, tool.strict)
                tools.append(Tool(function))
        return tools

    def _choice(self, tools: list[Tool]) -> object:
        choice = self.tool_choice
        if choice is None or (isinstance(choice, str) and choice in CHOICES):
            return choice
        kind = choice.get("type") if isinstance(choice, dict) else None
        if kind == "function" and isinstance(choice.get("name"), str):
            return {"type": "function", "function": {"name": choice["name"]}}
        if kind == "allowed_tools":
            if not tools:
                raise invalid(
                    "tool_choice.tools names no function of tools, expected one or more",
                    "tool_choice",
                )
            return choice.get("mode", "auto")
        raise unsupported(
            "tool_choice",
            f"it is {repr(choice)[:64]}, expected {', '.join(CHOICES)}, a function by its name, or "
            "allowed_tools",
        )

    def _form(self, turns: Turns) -> ResponseFormat | None:
        form = self.text.format if self.text else None
        turns.paths["response_format"] = "text.format"
        if form is None:
            return None
        if form.type != "json_schema":
            return ResponseFormat(form.type)
        if form.schema is None:
            raise invalid(
                "text.format.schema is missing, expected a JSON schema", "text.format.schema"
            )
        return ResponseFormat(form.type, SchemaFormat(form.name, form.schema))

    def _variables(self) -> dict[str, Any]:
        variables = dict(self.chat_template_kwargs or {})
        effort = self.reasoning.effort if self.reasoning else None
        if effort == "none":
            variables |= dict.fromkeys(("enable_thinking", "thinking"), False)
        if effort:
            variables["reasoning_effort"] = effort
        if self.text is not None and self.text.verbosity:
            variables["verbosity"] = self.text.verbosity
        return variables


def _tool(values: dict[str, Any], path: str) -> AgentTool:
    try:
        return msgspec.convert(values, AgentTool)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        field = f"{path}{place.removesuffix('`')}"
        raise invalid(f"{field}: {reason}", field) from error


def _said(text: str) -> Item:
    return Item(role="user", content=text)


def _add(turns: Turns, path: str, item: Item) -> None:
    match item.type:
        case "message":
            _add_message(turns, path, item)
        case "function_call":
            turns.call(path, item.call_id, item.name, item.arguments)
        case "function_call_output":
            turns.result(path, item.call_id, _texts(item.output, f"{path}.output"))
        case "reasoning":
            thoughts = item.content or item.encrypted_content or item.summary
            if thoughts:
                turns.think(path, _texts(thoughts, f"{path}.content"))
        case "item_reference":
            if not (item.id or "").startswith("rs_"):  # a thought is lost without harm
                raise unsupported(f"{path}.type", f"it is 'item_reference', and {BY_ID}")
        case _:
            raise unsupported(
                f"{path}.type",
                f"it is '{item.type[:64]}', expected message, function_call, "
                "function_call_output or reasoning",
            )


def _add_message(turns: Turns, path: str, item: Item) -> None:
    check_role(item.role, ROLES, path)
    if item.content is None:
        raise invalid(
            f"{path}.content is missing, expected a text or a list of parts", f"{path}.content"
        )
    text = _texts(item.content, f"{path}.content")
    if item.role == "assistant":
        turns.say(path, text)
    else:
        turns.add(path, ChatMessage(role=item.role, content=text))


def _texts(content: str | list[Part] | None, path: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for place, part in enumerate(content):
        if part.type not in PARTS:
            raise unsupported(
                f"{path}[{place}].type",
                f"it is '{part.type[:64]}', and the model reads texts alone",
            )
    return "\n".join(part.text or part.refusal for part in content)
