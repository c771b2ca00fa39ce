"""Chat templates of a checkpoint, read as the server reads them, before a graph is made of it."""

from collections.abc import Mapping
from typing import Any

from export.errors import ExportError
from service.errors import LoadError
from service.text.conversation import texts_of
from service.text.template_process import TemplateLimits, TemplateProcess

# Of a render, of which there is none here.
NO_RENDER = TemplateLimits(limit_s=1.0, max_characters=1)


def check_templates(chat: Mapping[str, Any]) -> None:
    """Raise `ExportError` for a template that the server could not load the model with."""
    try:
        texts = texts_of(chat.get("chat_template"))
        if not texts:
            return
        TemplateProcess(texts, {}, NO_RENDER).close()
    except LoadError as error:
        raise ExportError(
            f"{error}: mend the template in the folder that was imported, or remove it, and "
            "import the folder again"
        ) from error
