"""Makes prompts of conversations: the templates of one model, and the process that renders them.

All of that is done on one thread per model: neither a template that never ends nor one that takes
all memory is in the way of another model's requests, nor of those of this model that are no
conversations. `encode` is called on the event loop.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from service.calls.conversation import Conversation
from service.contract.prompt_reading import PromptReading
from service.errors import InvalidArgument, Overloaded
from service.records import current_call
from service.text.conversation import ChatTemplates
from service.text.template_process import TemplateLimits, TemplateProcess
from service.text.tokenizer import PromptTokenizer, without_panics

MAX_WAITING = 64  # conversations of one model that are rendered, or wait for it: 1 ms each


class Chat:
    """The conversations of one model."""

    def __init__(
        self, templates: ChatTemplates, tokenizer: PromptTokenizer, limits: TemplateLimits
    ) -> None:
        """Start the process. Raises `LoadError`."""
        self.templates = templates
        self._tokenizer = tokenizer
        self._max_characters = limits.max_characters
        self._process = TemplateProcess(templates.texts, templates.special_tokens, limits)
        self._thread = ThreadPoolExecutor(1, "chat-template")
        self._num_waiting = 0

    async def encode(
        self, conversation: Conversation, reading: PromptReading | None = None
    ) -> np.ndarray:
        """Token ids int64 [S]. Raises `InvalidArgument`, `Overloaded`, and `ModelFailed`."""
        if self._num_waiting >= MAX_WAITING:
            raise Overloaded("Exceeds maximum queue size")
        self._num_waiting += 1
        started_s = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._encode, conversation, reading)
        finally:
            self._num_waiting -= 1
            if (call := current_call.get()) is not None:
                call.tokenized_s = started_s, time.monotonic()

    def _encode(self, conversation: Conversation, reading: PromptReading | None) -> np.ndarray:
        num_characters = conversation.num_characters
        if num_characters > self._max_characters:
            raise InvalidArgument(
                f"the messages have {num_characters} characters, "
                f"the server takes at most {self._max_characters}",
                "messages",
            )
        special, templates = self._tokenizer.special_texts, self.templates
        name = templates.choose(conversation)
        values = {
            "messages": templates.messages_for(name, conversation),
            "tools": list(conversation.tools),
            "variables": dict(conversation.variables),
        }
        mark = special.mark_in(values, templates.texts.values())
        prompt = self._process.render(
            {
                **special.broken(values, mark),
                "template": name,
                "has_answer_prompt": conversation.has_answer_prompt,
                "continues_last": conversation.continues_last,
            }
        )
        with without_panics():
            return self._tokenizer.encode_marked(prompt, mark, reading)

    def close(self) -> None:
        """End the process; what waits for it fails."""
        self._process.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
