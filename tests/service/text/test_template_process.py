"""Chat templates: the same prompts as transformers makes, and hostile ones within their bounds."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from service.errors import InvalidArgument, LoadError, ModelFailed, Unavailable
from service.text.conversation import ChatTemplates
from service.text.template_process import TemplateLimits, TemplateProcess
from tests.fakes.chats import ENDLESS, FAMILIES
from tests.fakes.sessions import PATIENCE_S

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ASK, ANSWER = (
    {"role": "user", "content": " 3 < 5 & 'é'?\n"},
    {"role": "assistant", "content": "Yes."},
)
SYSTEM = {"role": "system", "content": "Be brief."}
THINKING = {"role": "assistant", "content": "<think>\nHm\n</think>\n\nYes."}
TOOL = {"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "sum", "arguments": {"a": [1, "<é>"]}}}
CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "6"}
SLOW_S = 30.0  # longer than any of these takes on a busy machine


CONVERSATIONS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([ASK], {}),
    ([SYSTEM, ASK], {}),
    ([ASK, ANSWER, ASK], {}),
    ([ASK, THINKING, ASK], {"enable_thinking": False}),
    ([ASK, ASK], {}),
    ([SYSTEM, ASK, ANSWER], {"documents": [{"text": "A <b> & c"}]}),
    ([ASK, CALLS, RESULT, ASK], {"tools": [TOOL]}),
    ([ASK, ANSWER | {"reasoning_content": "So."}], {"controls": {"length": "é"}}),
]


@contextmanager
def process(
    template: str, limit_s: float = SLOW_S, max_characters: int = 100_000
) -> Iterator[TemplateProcess]:
    made = TemplateProcess({"default": template}, TOKENS, TemplateLimits(limit_s, max_characters))
    try:
        yield made
    finally:
        made.close()


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    request = {
        "messages": list(messages),
        "tools": [],
        "variables": {},
        "template": "default",
        "has_answer_prompt": True,
        "continues_last": False,
    }
    return request | fields


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_is_that_of_transformers(family: str) -> None:
    """Eight conversations, with and without the beginning of an answer, or refused by both.

    Where transformers writes the word None, or cannot join it, it is the prompt of no text.
    """
    template, num_rendered = FAMILIES[family], 0
    with process(template) as ours:
        for messages, more in CONVERSATIONS:
            for has_answer_prompt in (True, False):
                expected = by_transformers(template, messages, has_answer_prompt, **more)
                if CALLS in messages and (expected is None or "None" in expected):
                    empty = [{**each, "content": each["content"] or ""} for each in messages]
                    expected = by_transformers(template, empty, has_answer_prompt, **more)
                variables = {name: value for name, value in more.items() if name != "tools"}
                request = asked(
                    *messages,
                    tools=more.get("tools", []),
                    variables=variables,
                    has_answer_prompt=has_answer_prompt,
                )
                if expected is None:
                    with pytest.raises(InvalidArgument):
                        ours.render(request)
                else:
                    num_rendered += 1
                    assert ours.render(request) == expected
    assert num_rendered >= 4, "most of them are taken"


def by_transformers(
    template: str, messages: list[Any], has_answer_prompt: bool, **more: Any
) -> str | None:
    """None where the template refuses them."""
    try:
        return transformers_prompt(
            messages,
            chat_template=template,
            add_generation_prompt=has_answer_prompt,
            **{"tools": None, **more},
        )
    except Exception:  # whatever a template makes of it
        return None


def transformers_prompt(messages: list[Any], **options: Any) -> str:
    """What `apply_chat_template` makes of messages."""
    texts: Any = render_jinja_template([messages], **options, **TOKENS)  # type: ignore[arg-type]
    return str(texts[0][0])


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("[{{ m.content }}]", "[]"),
        ("[{{ m.content | trim }}]", "[]"),
        ("{{ '[' + m.content + ']' }}", "[]"),
        ("{{ '[' ~ m.content ~ ']' }}", "[]"),
        ("{{ '[%s]' % m.content }}{{ '[%s]' | format(m.content) }}{{ '[{}]'.format(m.content) }}",
         "[][][]"),
        ("{{ ['[', m.content, ']'] | join }}", "[]"),
        ("{{ m.content.strip() }}{{ m.content | string }}", ""),
        ("{{ m.content | length }}{{ 'x' in m.content }}", "0False"),
        ("{% for part in m.content %}a{% endfor %}", ""),
        ("{% if m.content %}a{% else %}b{% endif %}", "b"),
        ("{% if m.content is none %}a{% endif %}{% if m.content is not none %}b{% endif %}", "a"),
        ("{% if m.content == none %}a{% endif %}{% if none != m['content'] %}b{% endif %}", "a"),
        ("{% if m.content is string %}a{% elif m.content is defined %}b{% endif %}", "b"),
        ("{{ m.content or 'x' }}{{ m.content | default('x', true) }}", "xx"),
        ("{{ m.content | tojson }}{{ [m.content] | tojson }}", "null[null]"),
        ("{{ m | tojson }}", '{"role": "assistant", "content": null, "tool_calls": []}'),
    ],
)  # fmt: skip
def test_content_that_is_null_renders_as_nothing(template: str, prompt: str) -> None:
    """Whatever a template does with it; whether it is none is answered as ever."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    with process("{% for m in messages %}" + template + "{% endfor %}") as ours:
        assert ours.render(asked(message)) == prompt
        with pytest.raises(InvalidArgument, match="the last message has no text to continue"):
            ours.render(asked(message, has_answer_prompt=False, continues_last=True))


@pytest.mark.parametrize("last", ["Once upon", "Once upon ", "Once\n\n"])
def test_a_last_message_is_continued_as_by_transformers(last: str) -> None:
    messages = [ASK, {"role": "assistant", "content": last}]
    for family in ("chatml", "llama_3", "mistral"):
        expected = transformers_prompt(
            messages, chat_template=FAMILIES[family], continue_final_message=True
        )
        with process(FAMILIES[family]) as ours:
            request = asked(*messages, has_answer_prompt=False, continues_last=True)
            assert ours.render(request) == expected


def test_what_a_template_refuses_has_its_words() -> None:
    with process(FAMILIES["gemma"]) as ours:
        with pytest.raises(InvalidArgument, match="System role not supported"):
            ours.render(asked(SYSTEM, ASK))
        assert ours.render(asked(ASK)).startswith("<s><start_of_turn>user\n3 < 5")


def test_a_template_may_read_the_date() -> None:
    with process("{{ strftime_now('%Y') }}") as ours:
        assert int(ours.render(asked(ASK))) in (datetime.now().year, datetime.now().year - 1)


@pytest.mark.parametrize(
    "template",
    [
        ENDLESS,
        "{{ 'a' * 10**10 }}{{ messages }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
        "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ ('%' ~ messages|length ~ '000000000s') % 'a' }}",
        "{{ messages[0].content.center(10**10) }}",
        "{{ [messages[0].content * 1000000]|batch(10**9, 'x')|list }}",
        "{{ 7 ** messages|length ** 99999999 }}{{ 9 ** (9 ** (9 + messages|length)) }}",
    ],
)
def test_a_template_that_takes_all_time_or_memory_ends_at_its_bound(template: str) -> None:
    """In 0.5 s, and the next render has a process again."""
    try:
        with process(template, limit_s=0.5) as ours:
            for _ in range(2):
                started_s = time.monotonic()
                with pytest.raises(InvalidArgument):  # the messages are at fault, not the server
                    ours.render(asked(ASK))
                assert time.monotonic() - started_s < SLOW_S
    except LoadError:  # it is computed already where it is read
        pass


def test_a_template_writes_no_more_than_its_bound() -> None:
    with process("{% for i in range(99999) %}0123456789{% endfor %}", max_characters=1_000) as ours:
        with pytest.raises(InvalidArgument, match="writes more than 1000 characters"):
            ours.render(asked(ASK))
        assert ours.pid is not None, "the process lives on"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ cycler.__init__.__globals__.os.environ }}",
        "{{ self.__init__.__globals__['os'] }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(namespace) }}",
        "{{ namespace(__class__=1) }}",
        "{{ dict.__subclasses__() }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_reaches_nothing_of_python(template: str) -> None:
    with process(template) as ours, pytest.raises(InvalidArgument, match="chat template refuses"):
        ours.render(asked(ASK))


@pytest.mark.parametrize("template", ["{% for m in messages %}", "{{ 1 +", "{% endif %}"])
def test_a_template_that_cannot_be_read_is_not_loaded(template: str) -> None:
    with pytest.raises(LoadError, match="the chat template cannot be read: line 1: "):
        TemplateProcess({"default": template}, TOKENS, TemplateLimits(SLOW_S, 1_000))


def test_the_process_sees_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "42")
    with process("{{ messages }}") as ours, open(f"/proc/{ours.pid}/environ") as environment:
        assert "SOME_SECRET" not in environment.read()


def test_a_process_that_is_killed_by_another_is_no_fault_of_the_messages() -> None:
    with process("{{ messages }}") as ours:
        assert ours.pid is not None
        os.kill(ours.pid, signal.SIGKILL)
        with pytest.raises(ModelFailed, match="has ended"):
            ours.render(asked(ASK))
        assert ours.render(asked(ASK))


def test_closing_ends_a_render_and_its_process() -> None:
    with process(ENDLESS) as ours:
        pid = ours.pid
        failures: list[Exception] = []

        def render() -> None:
            try:
                ours.render(asked(ASK))
            except Unavailable as error:
                failures.append(error)

        thread = threading.Thread(target=render)
        thread.start()
        time.sleep(0.1)
        ours.close()
        thread.join(PATIENCE_S)
        assert len(failures) == 1
        assert not os.path.exists(f"/proc/{pid}")


def test_the_form_of_calls_is_that_of_the_template_s_family() -> None:
    found = {
        name: ChatTemplates({"default": text}, {}).tool_form for name, text in FAMILIES.items()
    }
    assert {name: form for name, form in found.items() if form} == {
        "llama_3": "llama",
        "qwen_3": "hermes",
    }
    assert (
        ChatTemplates({"default": "", "tool_use": "tools[TOOL_CALLS]"}, {}).tool_form == "mistral"
    )
