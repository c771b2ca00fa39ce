"""A model that reads texts: tokenized, run as an item each, and given back by text."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from service.batching.engine import BatchEngine
from service.batching.limits import BatchLimits
from service.batching.queue import Size
from service.batching.request import Item, Request
from service.calls.conversation import Conversation
from service.calls.models import ModelFacts
from service.contract.interface import ModelInterface
from service.contract.manifest import Manifest
from service.errors import NoChatTemplate
from service.records import EndedRequest, Timings
from service.serving.facts import facts_with
from service.serving.model import Caller, Host, InferReply, InferRequest
from service.serving.tasks.embedding_kinds import kinds_of
from service.serving.tasks.fill_mask import FILL_MASK
from service.serving.tasks.table import text_task
from service.serving.tasks.task import GraphOutput, OutputRows, Reading, TextReply
from service.serving.tensor_model import BatchedModel
from service.serving.workers import Tokenizing
from service.text.places import place_of
from service.text.tokenizer import EncodedText, Text, TextTokenizer, TokenRows, check_rows

T = TypeVar("T")


SIZE_WINDOW = 10_000  # characters of earlier texts that give the expected tokens per character
INLINE_VALUES = 2**17  # of a reply: each takes about 50 ns in a message
PLAIN = Reading()
CAUTION = 0.9  # of tokens expected: a request refused before tokenizing would be refused after it


class TextModel(BatchedModel):
    """A model that reads texts, for the task that its manifest names."""

    def __init__(
        self, host: Host, interface: ModelInterface, engine: BatchEngine, tokenizer: TextTokenizer
    ) -> None:
        assert interface.manifest is not None, "a text model has one"
        super().__init__(host, interface, engine)
        self.manifest = interface.manifest
        self.task = text_task(interface.manifest)
        self.task_name = self.task.name
        self._outputs = self.task.outputs_of(interface.manifest)
        self.tokenizer = tokenizer
        self._executor = host.executor
        self.tokenizing = Tokenizing(host.executor, has_known_time=tokenizer.has_known_time)
        self._tokens_per_character = 0.0  # of texts so far; 0: the first one is admitted unseen

    def facts(self) -> ModelFacts:
        facts = facts_with(self.manifest, self.interface).also(
            vocabulary_size=self.tokenizer.num_tokens,
            mask_token=self._mask_token,
        )
        if self.manifest.task != "embedding":
            return facts
        return facts.also(
            embedding_kinds=kinds_of(self.manifest),
            sparse_size=self.manifest.sparse_size,
            token_vector_size=self.manifest.token_vector_size,
        )

    @property
    def _mask_token(self) -> str:
        if self.task is FILL_MASK:
            return self.tokenizer.spelling(self.manifest.mask_token_id)
        return self.tokenizer.mask_token

    def close(self, timeout_s: float) -> None:
        self.tokenizing.close()
        super().close(timeout_s)

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        with self.counted_failures(request.caller.received_s):
            read = self.task.tensors(self, request.parameters)
            texts = self.task.texts_of(request.inputs)
            texts = self.task.prompted(self, request.parameters, texts)
        reply = await self.compute(texts, request.caller, request.can_truncate)
        outputs = await self.interpreted(reply, lambda: read(texts, reply))
        return InferReply(outputs, reply.timings)

    async def compute(
        self,
        texts: Sequence[Text] | TokenRows,
        caller: Caller,
        can_truncate: bool = False,
        reading: Reading = PLAIN,
    ) -> TextReply:
        """Tokenize texts, unless these are tokens, and run them, each as an item of its own."""
        with self.counted_failures(caller.received_s):
            size = self._size_of(texts, can_truncate)
            # Before any work, so that refusing is cheap.
            self._batches.check_room(caller.priority, caller.deadline_s, size)
            rows = await self._encode(texts, can_truncate)
            reading.check(rows)
            if not isinstance(texts, TokenRows):
                num_characters = self.tokenizer.check_sizes(texts)
                self._learn_size(sum(row.num_tokens for row in rows), num_characters)
            if not rows:  # an empty batch is answered without running
                now_s = time.monotonic()
                timings = Timings.without_batch(caller.received_s, now_s)
                self._report(EndedRequest(timings, 0, caller.request_id))
                return TextReply(self._no_rows(), rows, timings)
            request = caller.new_request()
            parts = parts_of(rows, self._batches.limits)
            if len(parts) == 1:
                request.items = text_items(request, rows, self.manifest, reading)
                results = partial(self._joined, request.items)
                outputs = await self._run(request, caller.request_id, results)
            else:
                outputs = await self._run_parts(request, parts, caller, reading)
        return TextReply(outputs, rows, request.timings)

    async def _run_parts(
        self,
        request: Request,
        parts: Sequence[Sequence[EncodedText]],
        caller: Caller,
        reading: Reading,
    ) -> dict[str, OutputRows]:
        """Run a request that is too large for the queue part by part; it is reported as one."""
        items: list[Item] = []
        results: list[list[np.ndarray]] = []
        self._note_call(request)
        for part in parts:
            waiting = replace(request, items=(), results={})  # the same timings
            waiting.items = text_items(waiting, part, self.manifest, reading)
            items += waiting.items
            results += await self._batches.run(waiting)
        outputs = self._joined(items, results)
        self._report(EndedRequest(request.timings, len(items), caller.request_id))
        return outputs

    async def prompt_of(self, conversation: Conversation) -> np.ndarray:  # noqa: ARG002
        """No prompt: raises `NoChatTemplate`."""
        raise NoChatTemplate(
            f"model '{self.name}' takes no conversation, but a text", "conversation"
        )

    async def interpreted(self, reply: TextReply, read: Callable[[], T]) -> T:
        """The result of `read` from a reply, on another thread if it is large."""
        if reply.num_rows <= self.task.inline_rows and reply.num_values <= INLINE_VALUES:
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    def _joined(
        self, items: Sequence[Item], results: Sequence[Sequence[np.ndarray]]
    ) -> dict[str, OutputRows]:
        """Each output of the graph for all items of a request, float32."""
        outputs: dict[str, OutputRows] = {}
        for output, parts in zip(self._outputs, zip(*results, strict=True), strict=True):
            values = np.concatenate(parts) if len(parts) > 1 else parts[0]
            counts = [item.output_rows.get(output.name, item.num_rows) for item in items]
            outputs[output.name] = OutputRows(values.astype(np.float32, copy=False), counts)
        return outputs

    def _no_rows(self) -> dict[str, OutputRows]:
        """The outputs of no text."""
        shapes = {
            output.name: (0, *(max(0, dim) for dim in output.dims(self.manifest)))
            for output in self._outputs
        }
        return {name: OutputRows(np.empty(shape, np.float32), []) for name, shape in shapes.items()}

    def _size_of(self, texts: Sequence[Text] | TokenRows, can_truncate: bool) -> Size:
        """The expected tokens of texts, from the ratio of earlier ones."""
        if isinstance(texts, TokenRows):
            return Size(len(texts), sum(min(len(ids), self.manifest.max_tokens) for ids in texts))
        num_characters = self.tokenizer.check_sizes(texts)
        num_tokens = int(CAUTION * self._tokens_per_character * num_characters)
        if can_truncate:
            num_tokens = min(num_tokens, len(texts) * self.manifest.max_tokens)
        return Size(len(texts), num_tokens)

    def _learn_size(self, num_tokens: int, num_characters: int) -> None:
        """Take in a request, weighted by its characters.

        Special tokens give a text of one letter three tokens, and an empty text two: such texts say
        nothing about long ones.
        """
        weight = num_characters / (num_characters + SIZE_WINDOW)
        share = num_tokens / max(1, num_characters)
        self._tokens_per_character += weight * (share - self._tokens_per_character)

    async def _encode(
        self, texts: Sequence[Text] | TokenRows, can_truncate: bool
    ) -> list[EncodedText]:
        if isinstance(texts, TokenRows):
            rows = self.tokenizer.take(texts, can_truncate)
            self._check_rows(rows)
            self.task.check(self, [""] * len(rows), rows)
            return rows
        num_characters = self.tokenizer.check_sizes(texts)
        rows = await self.tokenizing.run(
            lambda: self.tokenizer.encode(texts, can_truncate), num_characters
        )
        self._check_rows(rows)
        self.task.check(self, texts, rows)
        return rows

    def _check_rows(self, rows: Sequence[EncodedText]) -> None:
        """Raise `InvalidArgument` for a token that the network's table has no row for."""
        num_rows = self.manifest.vocab_size
        if not num_rows:
            return
        for index, row in enumerate(rows):
            for part in (row, row.target):
                if part is not None:
                    place = place_of(index, is_pair=part is row.target)
                    check_rows(place, part.input_ids, num_rows, self.tokenizer.spelling)


def parts_of(rows: Sequence[EncodedText], limits: BatchLimits) -> list[list[EncodedText]]:
    """Texts in parts, of which two fill the queue at most, so that others find room beside them."""
    parts: list[list[EncodedText]] = [[]]
    num_tokens = 0
    for row in rows:
        is_full = len(parts[-1]) >= limits.part_rows
        if parts[-1] and (is_full or num_tokens + row.num_tokens > limits.part_tokens):
            parts.append([])
            num_tokens = 0
        parts[-1].append(row)
        num_tokens += row.num_tokens
    return parts


def text_items(
    request: Request, rows: Sequence[EncodedText], manifest: Manifest, reading: Reading = PLAIN
) -> tuple[Item, ...]:
    """One item per text."""
    outputs = text_task(manifest).outputs_of(manifest)
    return tuple(_item(request, row, manifest, outputs, reading) for row in rows)


def _item(
    request: Request,
    row: EncodedText,
    manifest: Manifest,
    outputs: Sequence[GraphOutput],
    reading: Reading,
) -> Item:
    inputs = {"input_ids": row.input_ids, "token_type_ids": row.token_type_ids}
    if row.target is not None:
        inputs["target_ids"] = row.target.input_ids
    if manifest.token_vector_size:  # of all tokens but the first, or of none
        inputs["vector_mask"] = np.full_like(row.input_ids, reading.has_vectors)
        inputs["vector_mask"][:, :1] = 0
    num_rows = {
        output.name: output.num_rows(inputs, manifest)
        for output in outputs
        if output.rows != "text"
    }
    return Item(request, inputs, num_tokens=row.num_tokens, output_rows=num_rows)
