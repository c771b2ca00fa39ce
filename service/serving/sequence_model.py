"""A recurrent network that reads symbols and writes symbols: as token ids, or as text.

Its graph decodes by itself, the likeliest symbol at each step, so there is nothing to sample and
nothing to stream: an answer is whole. Ids that stand for no symbol are refused, since the graph
would compute with whatever it has there. All methods run on the event loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.batching.engine import BatchEngine
from service.batching.request import Item
from service.calls.models import ModelFacts
from service.calls.sampling import Sampling
from service.contract.interface import ModelInterface
from service.contract.tensors import Arrays
from service.errors import InvalidArgument, invalid_field
from service.records import Timings
from service.serving.facts import facts_with
from service.serving.model import Caller, Host, InferReply, InferRequest
from service.serving.tensor_model import TensorModel
from service.text.tokenizer import TextTokenizer, check_num_tokens

SOURCE, TARGET = "source", "target"
MAX_NAMED_SYMBOLS = 16  # in one error
MAX_LISTED_SYMBOLS = 256  # in a list of models


@dataclass(frozen=True, slots=True)
class Written:
    """A network's output for one source."""

    text: str
    token_ids: list[int]
    num_source_tokens: int
    has_ended: bool  # False: it was cut off
    timings: Timings


class SequenceModel(TensorModel):
    """A tensor model that takes text too: symbols with spaces between them."""

    def __init__(
        self, host: Host, interface: ModelInterface, engine: BatchEngine, tokenizer: TextTokenizer
    ) -> None:
        assert interface.manifest is not None, "a recurrent model has one"
        super().__init__(host, interface, engine)
        self.manifest = interface.manifest
        self._tokenizer = tokenizer
        ids = range(tokenizer.num_tokens)
        self._symbol_ids = [i for i in ids if i not in tokenizer.meaningless_ids]
        self.symbols = [tokenizer.spelling(token_id) for token_id in self._symbol_ids]

    def facts(self) -> ModelFacts:
        symbols = self.symbols[:MAX_LISTED_SYMBOLS]
        return facts_with(self.manifest, self.interface).also(symbols=symbols)

    async def write(
        self,
        prompt: str | Sequence[int],
        params: Sampling,
        caller: Caller,
    ) -> Written:
        """The output for one source, or `InvalidArgument` where that has what is no symbol.

        `caller.priority` is that of `Generate`, where 0 goes first.
        """
        level = self._batches.limits.queue.level_behind(caller.priority)
        caller = replace(caller, priority=level)
        with self.counted_failures(caller.received_s):
            self._batches.check_room(caller.priority)  # before any work: refusing must be cheap
            self._check_params(params)
            source = self._source_of(prompt)
            request = caller.new_request()
            item = Item(request, {SOURCE: source}, 1, 1, (source.shape[1:],))
            request.items = (item,)
            outputs = await self._run(request, "", self._outputs_of)
        ids = outputs[TARGET][0].tolist()
        ends = [place for place, i in enumerate(ids) if i in self.manifest.eos_token_ids]
        most = len(ids) if params.max_tokens is None else params.max_tokens
        count = min(ends[0] if ends else len(ids), most)
        text = " ".join(map(self._tokenizer.spelling, ids[:count]))
        has_ended = bool(ends) and count == ends[0]
        return Written(text, ids[:count], source.shape[1], has_ended, request.timings)

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        with self.counted_failures(request.caller.received_s):
            self._check_ids(request.inputs)
        return await super()._compute_reply(request)

    def _source_of(self, prompt: str | Sequence[int]) -> np.ndarray:
        """int64 [1, S]."""
        if isinstance(prompt, str):
            self._tokenizer.check_sizes([prompt])
            unknown = self._tokenizer.unknown_words(prompt)
            if unknown:
                raise InvalidArgument(f"unknown symbol '{unknown[0][:64]}': {self._known()}")
            (row,) = self._tokenizer.encode([prompt], can_truncate=False)
            source = row.input_ids
        else:
            check_num_tokens(len(prompt), self.manifest.max_source_tokens)
            source = np.array([prompt], np.int64)
        self._check_symbols(source, self._symbol_ids)
        return source

    def _check_ids(self, inputs: Arrays) -> None:
        """Symbols, and padding behind them, or `InvalidArgument`."""
        source = inputs[SOURCE]
        pad = self.manifest.pad_token_id
        self._check_symbols(source, [*self._symbol_ids, pad])
        if ((source[:, :-1] == pad) & (source[:, 1:] != pad)).any():
            raise invalid_field(
                "source",
                f"has padding, {pad}, before a symbol, expected it behind",
            )

    def _check_symbols(self, source: np.ndarray, allowed: list[int]) -> None:
        is_other = ~np.isin(source, allowed)
        if is_other.any():
            raise invalid_field(
                "source",
                f"has id {source[is_other][0]}, which is no symbol: {self._known()}, with "
                f"ids {self._symbol_ids[0]} to {self._symbol_ids[-1]}",
            )

    def _known(self) -> str:
        named = ", ".join(self.symbols[:MAX_NAMED_SYMBOLS])
        more = len(self.symbols) - MAX_NAMED_SYMBOLS
        return f"the model knows {named}" + (f" and {more} more" if more > 0 else "")

    def _check_params(self, params: Sampling) -> None:
        """Checks the parameters for a network that always writes the likeliest symbol."""
        plain = Sampling(
            max_tokens=params.max_tokens or None,
            temperature=params.temperature,
            named=params.named,
        )
        if params != plain or params.temperature not in (0.0, Sampling().temperature):
            raise InvalidArgument(
                f"model '{self.name}' writes the likeliest symbol at each step: expected "
                "max_tokens and temperature 0 of sampling_params, and no others"
            )
