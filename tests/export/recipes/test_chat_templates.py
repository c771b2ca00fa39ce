"""Chat templates that the server could not load a model with are refused at export."""

from dataclasses import replace
from pathlib import Path

import pytest

from export.errors import ExportError
from export.exporter import export_any
from export.recipes.chat_templates import check_templates
from export.settings import ExportSettings
from tests.fakes.chats import ENDLESS, FAMILIES
from tests.fakes.tiny_llama import tiny_llama_generator


def test_a_template_that_cannot_be_read_is_refused_with_its_line_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    template = "{% for m in messages %}\n{{ m.content "
    chat = {"chat_template": [{"name": "default", "template": template}]}
    checkpoint = replace(tiny_llama_generator(), chat=chat)
    why = "the chat template cannot be read: line 2: .* mend the template in the folder"
    with pytest.raises(ExportError, match=why):
        export_any(checkpoint, ExportSettings("talks", tmp_path, "fp32"))
    assert not list(tmp_path.iterdir())


def test_templates_of_all_families_are_read_and_none_is_rendered() -> None:
    texts = {**FAMILIES, "endless": ENDLESS}
    check_templates({"chat_template": [{"name": n, "template": t} for n, t in texts.items()]})
    check_templates({"chat_template": next(iter(FAMILIES.values()))})
    check_templates({})
