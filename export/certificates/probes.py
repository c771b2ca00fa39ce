"""Probes for comparisons: 200 texts of many scripts, pairs, conversations and images.

Knows nothing about tokenizers and networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they've said we'd, couldn't and it's.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Η ταχεία αλεπού πηδά πάνω από τον τεμπέλη σκύλο.",  # noqa: RUF001 - Greek
    "敏捷的棕色狐狸跳过了懒狗。",
    "いろはにほへと ちりぬるを",
    "다람쥐 헌 쳇바퀴에 타고파",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "def f(x):\n    return {'a': x**2}  # 3.14e-10",
    "Visit https://example.org/a?b=c&d=%20 or write to me@example.org!",
    "1,234,567.89 € + 42% = $0.00; 10:30, 2026-11-28",
    "AAAAAAAAAA bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    "e\u0301 \u00e9 \ufb01 \u2460 \uff21 \u00bd \u212b",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
)
# Forms in which each of the sentences stands; all tokenizers must agree on spaces and cases.
FORMS = (
    "{}",
    " {}",
    "{} ",
    "  {}  {}",
    "{}\n\n{}",
    "\t{}\r\n",
    "{}\u00a0{}\u3000",
    "({})[{}]",
    "{}...",
)
ODD = (
    "",
    " ",
    "\n",
    "a",
    "\u0007\u0000\u200b\ufeff",
    "[CLS] [SEP] [MASK] [PAD] <s> </s> <pad> <unk>",
    "<|endoftext|><|im_start|>user\nHi<|im_end|>",
    "\ue000\uffff",
    "x" * 300,
    "don't stop" * 20,
)
_SHAPED = [form.replace("{}", sentence) for form, sentence in product(FORMS, SENTENCES)]
PROBES: tuple[str, ...] = (*_SHAPED, *(sentence.upper() for sentence in SENTENCES[:10]), *ODD)
PAIRS = tuple((SENTENCES[number], SENTENCES[number - 1]) for number in range(10))
# For outputs: short enough for any model, and none is the beginning of another.
COMPARED = (
    "The film was far better than I had expected.",
    "Where is the nearest station?",
    "A permit allows one request to be computed.",
    "Lunch is at noon, and costs $12.50.",
    "Berlin is the capital of Germany, as Anna Smith told me.",
)
COMPARED_PAIRS = tuple((COMPARED[number], COMPARED[number - 1]) for number in range(5))
NUM_IMAGES = 2
assert len(PROBES) == 200, "the certificate names the number"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, functions and further variables of a chat template."""

    name: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)


def _said(*turns: str, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - fields of the last
    """Turns of user and assistant, by turns."""
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [
        {"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)
    ]
    messages[-1] |= more
    return messages


_SYSTEM = {"role": "system", "content": "Answer in one short sentence."}
_FUNCTION = {
    "name": "weather",
    "description": "The weather in a town, <now> & later.",
    "parameters": {
        "type": "object",
        "properties": {"town": {"type": "string", "description": "Its name, e.g. K\u00f6ln"}},
        "required": ["town"],
    },
}
_CALL = {
    "type": "function",
    "id": "abcdef123",
    "function": {"name": "weather", "arguments": {"town": "Bonn"}},
}
_RESULT = {
    "role": "tool",
    "name": "weather",
    "tool_call_id": "abcdef123",
    "content": "rain, 12 \u00b0C",
}
_THOUGHT = "The user greets me."
CONVERSATIONS = (
    Conversation("a question", _said(SENTENCES[1])),
    Conversation(
        "a system's message and three turns", [_SYSTEM, *_said(" Hi! ", "Yes?\n", SENTENCES[8])]
    ),
    Conversation(
        "a call of a function",
        [*_said("How is the weather in Bonn?", "", tool_calls=[_CALL]), _RESULT],
        [{"type": "function", "function": _FUNCTION}],
    ),
    Conversation("without thinking", _said(SENTENCES[0]), variables={"enable_thinking": False}),
    Conversation(
        "with thinking",
        [*_said("Hi", "Hello.", reasoning_content=_THOUGHT, thinking=_THOUGHT), *_said("Bye")],
        variables={"enable_thinking": True},
    ),
)
