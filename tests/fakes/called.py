"""How families of models write calls: short templates in the structure of the published ones.

They are written apart from the server's own table of forms, and rendered as a tokenizer does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

BAR, LOW = "\uff5c", "\u2581"
_DS = {
    name: f"<{BAR}tool{LOW}{name.replace(' ', LOW)}{BAR}>"
    for name in ("calls begin", "calls end", "call begin", "call end", "sep")
}
_JSON = '{"name": {{ c.name|tojson }}, "arguments": {{ c.arguments|tojson }}}'
_VALUE = "{{ v if v is string else v|tojson }}"
_LIST = "{% for c in calls %}{{ '' if loop.first else ', ' }}" + _JSON + "{% endfor %}"
_EACH, _DONE = "{% for c in calls %}", "{% endfor %}"
_ARGS = "{% for k, v in c.arguments.items() %}"
_PYTHON = (
    "{% for c in calls %}{{ '' if loop.first else ', ' }}{{ c.name }}("
    "{% for k, v in c.arguments.items() %}{{ '' if loop.first else ', ' }}{{ k }}={{ v|python }}"
    "{% endfor %}){% endfor %}"
)
_GEMMA = (
    "{% macro value(v, q) %}{% if v is string %}{{ q }}{{ v }}{{ q }}"
    "{% elif v is mapping %}{{ '{' }}"
    "{% for k, each in v.items() %}{{ '' if loop.first else ',' }}{{ k }}:{{ value(each, q) }}"
    "{% endfor %}}{% elif v is sequence %}[{% for each in v %}{{ '' if loop.first else ',' }}"
    "{{ value(each, q) }}{% endfor %}]{% else %}{{ v|tojson }}{% endif %}{% endmacro %}"
)
TEMPLATES: Mapping[str, str] = {
    "hermes": f"{_EACH}<tool_call>\n{_JSON}\n</tool_call>\n{_DONE}",
    "llama": _LIST.replace("', '", "'; '").replace("arguments\"", "parameters\""),
    "mistral": f"[TOOL_CALLS] [{_LIST}]",
    "mistral-args": f"{_EACH}[TOOL_CALLS]{{{{ c.name }}}}[ARGS]{{{{ c.arguments|tojson }}}}{_DONE}",
    "granite": f"<|tool_call|>[{_LIST}]",
    "phi-4": f"functools[{_LIST}]",
    "cohere": (
        "<|START_ACTION|>[\n" + _EACH + "{{ '' if loop.first else ',\n' }}"
        '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": {{ c.name|tojson }}, '
        '"parameters": {{ c.arguments|tojson }}}' + _DONE + "\n]<|END_ACTION|>"
    ),
    "qwen-coder": (
        f"{_EACH}<tool_call>\n<function={{{{ c.name }}}}>\n{_ARGS}<parameter={{{{ k }}}}>\n"
        f"{_VALUE}\n</parameter>\n{_DONE}</function>\n</tool_call>\n{_DONE}"
    ),
    "glm": (
        f"{_EACH}<tool_call>{{{{ c.name }}}}\n{_ARGS}<arg_key>{{{{ k }}}}</arg_key>\n"
        f"<arg_value>{_VALUE}</arg_value>\n{_DONE}</tool_call>\n{_DONE}"
    ),
    "glm-4.7": (
        f"{_EACH}<tool_call>{{{{ c.name }}}}{_ARGS}<arg_key>{{{{ k }}}}</arg_key>"
        f"<arg_value>{_VALUE}</arg_value>{_DONE}</tool_call>{_DONE}"
    ),
    "minimax": (
        f'<minimax:tool_call>\n{_EACH}<invoke name="{{{{ c.name }}}}">\n{_ARGS}'
        f'<parameter name="{{{{ k }}}}">{_VALUE}</parameter>\n{_DONE}</invoke>\n{_DONE}'
        "</minimax:tool_call>"
    ),
    "deepseek": (
        _DS["calls begin"] + _EACH + _DS["call begin"] + "function" + _DS["sep"] + "{{ c.name }}\n"
        "```json\n{{ c.arguments|tojson }}\n```" + _DS["call end"]
        + "{{ '' if loop.last else '\n' }}" + _DONE + _DS["calls end"]
    ),
    "deepseek-v3.1": (
        _DS["calls begin"] + _EACH + _DS["call begin"] + "{{ c.name }}" + _DS["sep"]
        + "{{ c.arguments|tojson }}" + _DS["call end"] + _DONE + _DS["calls end"]
    ),
    "deepseek-v3.2": (
        f"<{BAR}DSML{BAR}function_calls>\n{_EACH}"
        f'<{BAR}DSML{BAR}invoke name="{{{{ c.name }}}}">\n{_ARGS}'
        f'<{BAR}DSML{BAR}parameter name="{{{{ k }}}}" '
        "string=\"{{ 'true' if v is string else 'false' }}\">"
        f"{_VALUE}</{BAR}DSML{BAR}parameter>\n{_DONE}</{BAR}DSML{BAR}invoke>\n{_DONE}"
        f"</{BAR}DSML{BAR}function_calls>"
    ),
    "kimi": (
        "<|tool_calls_section_begin|>" + _EACH + "<|tool_call_begin|>functions.{{ c.name }}:"
        "{{ loop.index0 }}<|tool_call_argument_begin|>{{ c.arguments|tojson }}<|tool_call_end|>"
        + _DONE + "<|tool_calls_section_end|>"
    ),
    "gpt-oss": (
        _EACH + "<|channel|>commentary to=functions.{{ c.name }} <|constrain|>json<|message|>"
        "{{ c.arguments|tojson }}<|call|>" + _DONE
    ),
    "gemma": _GEMMA + (
        "{% for c in calls %}<start_function_call>call:{{ c.name }}"
        "{{ value(c.arguments, '<escape>') }}<end_function_call>{% endfor %}"
    ),
    "gemma-4": _GEMMA + (
        "{% for c in calls %}<|tool_call>call:{{ c.name }}"
        "{{ value(c.arguments, '<|\"|>') }}<tool_call|>{% endfor %}"
    ),
    "lfm2": f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>",
    "olmo-3": "<function_calls>" + _PYTHON.replace("', '", "'\n'", 1) + "</function_calls>",
    "pythonic": f"[{_PYTHON}]",
}  # fmt: skip
# What a text before calls ends with, where the family marks its end.
BEFORE = {"gpt-oss": "<|end|><|start|>assistant"}


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 - texts of models
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["python"] = repr
    return environment


_ENVIRONMENT = _environment()
_COMPILED = {name: _ENVIRONMENT.from_string(text) for name, text in TEMPLATES.items()}


def written_calls(form: str, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Calls as a family's template writes them, without what ends the output."""
    named = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return _COMPILED[form].render(calls=named).rstrip("\n")
