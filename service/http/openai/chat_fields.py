"""The body of `/v1/chat/completions`, and the conversation that it has."""

from collections.abc import Collection
from typing import Any, ClassVar, Literal

import msgspec

from service.calls.conversation import Conversation, check_depth, read_call, read_message
from service.families.call_forms import CALL_FORMS
from service.grammars.form import Grammar
from service.http.numbers import Whole
from service.http.openai.sampling import MAX_LOGPROBS, SamplingFields
from service.http.openai.tool_grammars import Callable, grammar_of_calls
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import BUDGETS, REFUSALS
from service.http.status import invalid

ROLES = ("developer", "system", "user", "assistant", "tool", "function")
ANSWERING = ("assistant", "tool", "function")  # they may have nothing to say
# The body's names of fields of a conversation that the record calls otherwise.
CHAT_FIELDS = {
    "prompt": "messages",
    "conversation": "messages",
    "template_variables": "chat_template_kwargs",
}
NO_EFFORT, USUAL_EFFORT = "none", "medium"
REASONING_FORMATS = ("auto", "deepseek", "none")
CHOICES = "auto, none, required, or a function by its name"


class TextPart(msgspec.Struct):
    """A part of a message's content."""

    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct):
    """The function of a call, its arguments as the text of a JSON object."""

    name: str
    arguments: str | dict[str, Any] | None = None  # an object or null, as some clients write them

    @property
    def argument_text(self) -> str:
        """The arguments as the text of JSON."""
        if isinstance(self.arguments, dict):
            return msgspec.json.encode(self.arguments).decode()
        return self.arguments or "{}"


class ToolCall(msgspec.Struct):
    """An assistant's call of a function."""

    function: FunctionCall
    id: str | None = None
    type: str | None = None  # function; there is no other


class Function(msgspec.Struct):
    """A function that the model may call; its parameters are a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct):
    """A function, as a request declares it."""

    function: Function
    type: str = "function"


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message."""

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None  # what tool_calls replaced
    reasoning_content: str | None = None
    reasoning: str | None = None  # vLLM's name of it
    refusal: str | None = None


class ReasoningOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of the thoughts before an answer."""

    effort: str | None = None
    enabled: bool | None = None
    max_tokens: Whole | None = None


class ThinkingOptions(msgspec.Struct):
    """Whether a model thinks before its answer, and for how many tokens at most."""

    type: Literal["enabled", "disabled"]
    budget_tokens: Whole | None = None


class ChatRequest(SamplingFields, kw_only=True):
    """The body, as OpenAI has it and vLLM adds to it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["chats"]

    messages: list[ChatMessage]
    max_completion_tokens: Whole | None = None
    logprobs: bool | None = None
    top_logprobs: Whole | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    parallel_tool_calls: bool | None = None
    modalities: list[str] | None = None
    audio: Any = None
    web_search_options: Any = None
    # vLLM's
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None  # SGLang's
    reasoning_format: str | None = None  # llama.cpp's
    reasoning: ReasoningOptions | None = None  # OpenRouter's and SGLang's
    thinking: ThinkingOptions | None = None
    thinking_token_budget: Whole | None = None
    thinking_budget: Whole | None = None
    thinking_budget_tokens: Whole | None = None
    reasoning_budget_tokens: Whole | None = None
    reasoning_budget: Whole | None = None
    max_thinking_tokens: Whole | None = None

    def check(self) -> None:
        """Raise `HttpError` for what is not supported."""
        super().check()
        self._check_form()
        self._check_tools()
        if self.number_of("prompt_logprobs") is not None:
            raise unsupported("prompt_logprobs", "/v1/completions has them")
        if self.echo:
            raise unsupported("echo", "/v1/completions has it")
        if self.chat_template is not None:
            raise unsupported("chat_template", "it is a program: only the model's own is run")
        if self.top_logprobs is not None:
            if not self.logprobs:
                raise invalid("top_logprobs is set, expected logprobs to be true", "top_logprobs")
            if not 0 <= self.top_logprobs <= MAX_LOGPROBS:
                raise invalid(
                    f"top_logprobs is {self.top_logprobs}, expected 0 to {MAX_LOGPROBS}",
                    "top_logprobs",
                )

    def _check_form(self) -> None:
        if self.reasoning_format not in (None, *REASONING_FORMATS):
            raise invalid(
                f"reasoning_format is '{self.reasoning_format[:64]}', expected one of "
                f"{', '.join(REASONING_FORMATS)}",
                "reasoning_format",
            )
        if (self.modalities or ["text"]) != ["text"]:
            raise unsupported("modalities", "the output is text")
        if self.audio is not None:
            raise unsupported("audio", "the output is text")
        if self.web_search_options is not None:
            raise unsupported("web_search_options", "the server reaches no network")

    def _check_tools(self) -> None:
        names: set[str] = set()
        for place, tool in enumerate(self.tools or ()):
            if tool.type != "function":
                field = f"tools[{place}].type"
                raise invalid(f"{field} is '{tool.type[:64]}', expected function", field)
            name, field = tool.function.name, f"tools[{place}].function.name"
            if not name:
                raise invalid(f"{field} is empty, expected a name", field)
            if name in names:
                raise invalid(f"{field} is '{name[:64]}', expected another than before it", field)
            names.add(name)
        if self.strict_field and self.form_field:
            raise invalid(
                f"{self.form_field} is set beside {self.strict_field}, expected one of them",
                self.form_field,
            )
        if self.function_call not in (None, "none", "auto"):
            raise unsupported("function_call", "tool_choice is what replaced it")
        if self.functions and self.function_call != "none":
            raise unsupported("functions", "tools are what replaced them")
        self._check_choice(names)

    def _check_choice(self, names: Collection[str]) -> None:
        if self.tool_choice in (None, "none", "auto"):
            return
        chosen = self.chosen_name
        if not self.must_call and not chosen:
            shown = repr(self.tool_choice)[:64]
            raise unsupported("tool_choice", f"it is {shown}, expected {CHOICES}")
        if chosen and chosen not in names:
            raise invalid(
                f"tool_choice is the function '{chosen[:64]}', expected one of tools", "tool_choice"
            )
        if not names:
            raise invalid("tool_choice is required, expected functions in tools", "tool_choice")
        if self.form_field:
            raise invalid(
                f"{self.form_field} is set beside tool_choice, expected one of them",
                self.form_field,
            )

    @property
    def must_call(self) -> bool:
        """Whether any function must be called: `any` is Mistral's name of it."""
        return isinstance(self.tool_choice, str) and self.tool_choice in ("required", "any")

    @property
    def chosen_name(self) -> str:
        """The function that must be called; empty where the request names none."""
        choice = self.tool_choice
        if not isinstance(choice, dict) or choice.get("type") != "function":
            return ""
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        return name if isinstance(name, str) else ""

    def call_grammar(self, form: str) -> Grammar | None:
        """The grammar of calls in a model's form, where one is required or strict.

        Raises `HttpError`.
        """
        chosen, strict = self.chosen_name, self.strict_field
        is_kept = strict and CALL_FORMS[form].may_follow_text
        if not chosen and not self.must_call and not is_kept:
            return None
        is_single = bool(chosen) or self.parallel_tool_calls is False
        return grammar_of_calls(form, self.callables, is_single=is_single, may_be_text=bool(strict))

    @property
    def declared(self) -> list[Function]:
        """The functions, whether they may be called or not."""
        return [tool.function for tool in self.tools or ()]

    @property
    def callables(self) -> list[Callable]:
        """The functions in the grammar of calls, in its order."""
        chosen, strict = self.chosen_name, self.strict_field
        return [
            Callable(
                f"tools[{place}].function",
                tool.function.name,
                tool.function.parameters if tool.function.strict or not strict else None,
            )
            for place, tool in enumerate(self.tools or ())
            if not chosen or tool.function.name == chosen
        ]

    @property
    def strict_field(self) -> str:
        """The field by which a call keeps to a schema though none is required; empty without."""
        if self.tool_choice not in (None, "auto"):
            return ""
        tools = enumerate(self.tools or ())
        places = [place for place, tool in tools if tool.function.strict]
        return f"tools[{places[0]}].function.strict" if places else ""

    @property
    def callable_names(self) -> frozenset[str]:
        """The names of the functions that the model may call."""
        if self.tool_choice == "none":
            return frozenset()
        return frozenset(tool.function.name for tool in self.tools or ())

    @property
    def num_tokens(self) -> int | None:
        """The output's tokens at most; None leaves it to the server."""
        given = self.max_completion_tokens
        return self.number_of("max_tokens") if given is None else given

    @property
    def field_names(self) -> dict[str, str]:
        """The body's names of fields that the record calls otherwise."""
        names = CHAT_FIELDS | self.other_names
        if not self.form_field:
            names["lark"] = self.strict_field or "tool_choice"
        names["max_reasoning_tokens"] = self.thought_budget[0]
        if self.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
        if self.logprobs:
            names["logprobs"] = "top_logprobs"
        return names

    @property
    def thought_budget(self) -> tuple[str, int | None]:
        """The most tokens of thoughts, by the name that the request has. Raises `HttpError`."""
        given = {name: value for name in BUDGETS if (value := getattr(self, name)) is not None}
        given = {name: value for name, value in given.items() if value != -1}
        if self.reasoning is not None and self.reasoning.max_tokens is not None:
            given["reasoning.max_tokens"] = self.reasoning.max_tokens
        if self.thinking is not None and self.thinking.budget_tokens is not None:
            given["thinking.budget_tokens"] = self.thinking.budget_tokens
        if len(given) > 1:
            first, second, *_ = given
            raise invalid(f"{second} is set beside {first}, expected one of them", second)
        return next(iter(given.items()), ("max_reasoning_tokens", None))

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def _variables(self) -> tuple[dict[str, Any], list[str]]:
        """The variables of the template, and those that it must read. Raises `HttpError`."""
        named, needed = dict(self.chat_template_kwargs or {}), []
        if self.documents is not None:
            named["documents"] = self.documents
            needed += ["documents"] if self.documents else []
        effort = self.effort
        if effort == NO_EFFORT:  # what templates that let a model think call it
            named |= dict.fromkeys(("enable_thinking", "thinking"), False)
        elif self.thinking is not None or (self.reasoning and self.reasoning.enabled):
            named |= dict.fromkeys(("enable_thinking", "thinking"), True)
        if effort:
            named["reasoning_effort"] = effort
            needed += [] if effort in (NO_EFFORT, USUAL_EFFORT) else ["reasoning_effort"]
        return named, needed

    @property
    def effort(self) -> str | None:
        """Effort of thinking that the request asks for, if it does. Raises `HttpError`."""
        has_other = self.reasoning is not None or self.thinking is not None
        if self.reasoning_effort is not None and has_other:
            name = "thinking" if self.reasoning is None else "reasoning"
            raise invalid(f"{name} is set beside reasoning_effort, expected one of them", name)
        if self.reasoning is not None:
            if self.reasoning.enabled is False:
                return NO_EFFORT
            return self.reasoning.effort
        if self.thinking is not None and self.thinking.type == "disabled":
            return NO_EFFORT
        return self.reasoning_effort

    @property
    def reading(self) -> dict[str, Any]:
        in_text = self.separate_reasoning is False or self.reasoning_format == "none"
        return {**super().reading, "reasoning_in_text": in_text}

    def told(self, thoughts: str) -> dict[str, str]:
        """The thoughts by both names that clients read; nothing where they are not wanted."""
        if self.include_reasoning is False:
            return {}
        return {"reasoning_content": thoughts, "reasoning": thoughts}

    @property
    def conversation(self) -> Conversation:
        """The messages. Raises `HttpError` and `InvalidArgument`."""
        continues = bool(self.continue_final_message)
        if continues and self.add_generation_prompt:
            raise invalid(
                "continue_final_message is true, expected add_generation_prompt to be false",
                "continue_final_message",
            )
        variables, needed = self._variables()
        check_depth("template_variables", variables)
        return Conversation(
            messages=[_message(each, f"messages[{n}]") for n, each in enumerate(self.messages)],
            tools=self._declared() if self.callable_names else (),
            variables=variables,
            needed_variables=needed,
            has_answer_prompt=not continues and self.add_generation_prompt is not False,
            continues_last=continues,
        )

    def _declared(self) -> list[dict[str, Any]]:
        """The functions that may be called, with the fields in OpenAI's order."""
        declared = []
        for place, tool in enumerate(self.tools or ()):
            fields = msgspec.structs.asdict(tool.function).items()
            known = {name: each for name, each in fields if each is not None and name != "strict"}
            check_depth(f"tools[{place}]", known)
            declared.append({"type": "function", "function": known})
        return declared


def _message(message: ChatMessage, field: str) -> dict[str, Any]:
    if message.role not in ROLES:
        raise invalid(
            f"{field}.role is '{message.role[:64]}', expected one of {', '.join(ROLES)}",
            f"{field}.role",
        )
    calls = [
        _call(each.function, f"{field}.tool_calls[{place}].function", each.id or "")
        for place, each in enumerate(message.tool_calls or ())
    ]
    if message.function_call is not None:
        calls.append(_call(message.function_call, f"{field}.function_call"))
    content = _text_of(message, f"{field}.content")
    if content is None and not calls and message.role in ANSWERING:
        content = message.refusal or ""
    return read_message(
        field,
        "tool" if message.role == "function" else message.role,
        content,
        name=message.name or "",
        tool_call_id=message.tool_call_id or "",
        reasoning_content=message.reasoning_content or message.reasoning or "",
        tool_calls=calls,
    )


def _call(function: FunctionCall, field: str, call_id: str = "") -> dict[str, Any]:
    return read_call(field, call_id, function.name, function.argument_text)


def _text_of(message: ChatMessage, field: str) -> str | None:
    """The content as one text: parts are lines of it, as at other servers; no parts are none."""
    if not isinstance(message.content, list):
        return message.content
    if not message.content and message.role in ANSWERING:
        return None
    texts = []
    for place, part in enumerate(message.content):
        if part.type not in ("text", "refusal") or part.text is None:
            raise invalid(
                f"{field}[{place}].type is '{part.type[:64]}', expected 'text' with text beside it",
                f"{field}[{place}].type",
            )
        texts.append(part.text)
    return "\n".join(texts)
