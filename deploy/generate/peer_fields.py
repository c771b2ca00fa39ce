"""Write the tables of docs/reference/peer-fields.md, what becomes of the fields of other servers.

`python -m deploy.generate.peer_fields`. A test fails if the file is stale.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from service.http.shared.peer_fields import PeerField, Verdict
from service.http.shared.peer_tables import CHATS, COMPLETIONS, GENERATION, READING, TABLES

PATH = Path(__file__).parents[2] / "docs/reference/peer-fields.md"
HEAD = """# Fields of other servers

What becomes of the request fields that clients of OpenAI, vLLM, SGLang, llama.cpp, Ollama,
text-generation-inference, text-embeddings-inference, Jina, Voyage and Cohere send.
`python -m deploy.generate.peer_fields` writes this page from
`service/http/shared/peer_tables.py`, and `tests/service/http/shared/test_peer_fields.py` sends
every field to every route of its kind.

- *Done*: the field is read; it changes the answer, or a wrong value is refused.
- *Refused*: 400 with the field's name and the code `unsupported_parameter`, unless the value is
  `null` or one that is named here, which change nothing.
- *Harmless*: taken, whatever it is; the answer is the same.

A field that no table has is ignored, as clients add some every month.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    shared = {id(CHATS): GENERATION, id(COMPLETIONS): GENERATION}
    yield from _section("chats and completions", GENERATION)
    yield from _section("vectors, scores and classes", READING)
    for kind, fields in TABLES.items():
        common = shared.get(id(fields), READING)
        own = [field for field in fields if field not in common]
        note = "" if len(own) == len(fields) else ", beside those that several kinds have"
        yield from _section(kind + note, own)


def _section(title: str, fields: Iterable[PeerField]) -> Iterator[str]:
    yield f"## {title[0].upper()}{title[1:]}\n"
    by_verdict = {verdict: [f for f in fields if f.verdict is verdict] for verdict in Verdict}
    if names := by_verdict[Verdict.DONE]:
        yield f"Done: {_names(names)}.\n"
    for verdict, title_of_value in ((Verdict.REFUSED, "unless it is"), (Verdict.HARMLESS, "")):
        if not by_verdict[verdict]:
            continue
        columns = ["why", *([title_of_value] if title_of_value else [])]
        yield f"| {verdict} | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 1) + "|"
        for (reason, neutral), group in groupby(
            by_verdict[verdict], lambda field: (field.reason, field.neutral)
        ):
            cells = [_names(group), reason]
            if title_of_value:
                cells.append(", ".join(f"`{json.dumps(value)}`" for value in neutral))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _names(fields: Iterable[PeerField]) -> str:
    return ", ".join(f"`{field.name}`" for field in fields)


if __name__ == "__main__":
    PATH.write_text(page())
