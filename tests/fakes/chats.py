"""Chat templates in the forms of published models' families, and a model that has one."""

from pathlib import Path
from typing import Any

from tests.fakes.sessions import generator_manifest, write_model

# Short, so that a conversation fits the 64 tokens of the fakes' context.
PLAIN = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[a]{% endif %}"
)
# It declares functions, and shows calls of them, as Qwen's does: <tool_call>.
TOOLS = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}]"
    "{% if m.tool_calls %}<tool_call>{{ m.tool_calls[0].function | tojson }}</tool_call>"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
)
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"

FOLDER = Path(__file__).parents[1] / "saved" / "chat_templates"
FAMILIES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.jinja"))}


def write_chat_model(
    repository: Path, name: str = "talks", template: str = PLAIN, **manifest: Any
) -> Path:
    """A generative model with a chat template; returns its version's folder."""
    folder = write_model(repository, name, generator_manifest(**manifest)) / "1"
    (folder / "chat_template.jinja").write_text(template)
    return folder


def rendered(*messages: tuple[str, str]) -> str:
    """What `PLAIN` makes of roles and contents."""
    return "".join(f"[{role}]{content}" for role, content in messages) + "[a]"
