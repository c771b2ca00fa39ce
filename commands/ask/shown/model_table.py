"""The table of `attendant models`: a line per version, or several in a narrow terminal.

docs/how-to/cuda.md says what was verified on CUDA.
"""

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from commands.ask.shown.tables import Table
from service.calls.models import ModelFacts, Models

MAX_SHOWN_SYMBOLS = 16  # of a model
MAX_SHOWN_PROMPTS = 8
LEAST_TEXT_WIDTH = 20  # of what a model gives, and of its origin: less would be a word per line

# In a narrow terminal, longer names break into two lines. The task's column then has room for
# "int8-weights, 1024 tokens", and a terminal of 80 characters has 14 left for the third.
MOST_NAME_WIDTH, MOST_TASK_WIDTH = 30, 26
BORDERS = 10  # four lines and the spaces beside them


class ModelTable:
    """One row per served version."""

    def __init__(self, response: Models) -> None:
        self._models = response.models

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._wide()
        for column in wide.columns[:-2]:
            column.no_wrap = True
        for column in wide.columns[-2:]:
            column.min_width = LEAST_TEXT_WIDTH
        fits = Measurement.get(console, options.update(width=10_000), wide).minimum
        yield wide if fits <= options.max_width else self._narrow(options.max_width)

    def _wide(self) -> Table:
        table = Table("model", "version", "task", "precision", "tokens", "gives", "origin")
        for model in self._models:
            cells = (
                model.name,
                model.version,
                model.task,
                _computed_in(model),
                str(model.max_tokens or ""),
                _gives(model),
                _origin(model),
            )
            table.add_row(*map(Text, cells))
        return table

    def _narrow(self, max_width: int) -> Table:
        """A narrow table: values of lesser importance below the others."""
        table = Table("model", "task", "gives, origin", show_lines=True)
        names, tasks = [], []
        for model in self._models:
            tokens = f"{model.max_tokens} tokens" if model.max_tokens else ""
            facts = ", ".join(fact for fact in (_computed_in(model), tokens) if fact)
            names += [model.name, f"version {model.version}"]
            tasks += [model.task, facts]
            texts = (names[-2:], tasks[-2:], [_gives(model), _origin(model)])
            table.add_row(*(Text("\n".join(filter(None, lines))) for lines in texts))
        name, task, text = table.columns
        name.width = min(max(map(len, names), default=5), MOST_NAME_WIDTH)
        task.width = min(max(map(len, tasks), default=5), MOST_TASK_WIDTH)
        text.max_width = max(max_width - name.width - task.width - BORDERS, 1)
        return table


def _computed_in(model: ModelFacts) -> str:
    """Precision, and where they are not the default, the layout and the device of the graph."""
    device = "for cuda" if model.graph_device == "cuda" else ""
    layout = model.layout
    if model.layout_reason:
        layout = f"{layout or 'packed'} ({model.layout_reason})"
    return ", ".join(filter(None, (model.precision, layout, device)))


def _origin(model: ModelFacts) -> str:
    parent = f"adapter of {model.parent}" if model.parent else ""
    return ", ".join(filter(None, (parent, model.origin)))


def _vectors(model: ModelFacts) -> str:
    shorter = f" (or {', '.join(map(str, model.dimensions))})" if model.dimensions else ""
    return f"{model.embedding_size} values{shorter}, {model.pooling}"


def _prompts(model: ModelFacts) -> str:
    names = [prompt.name for prompt in model.prompts]
    if not names:
        return ""
    more = ", …" * (len(names) > MAX_SHOWN_PROMPTS)
    default = f", by default {model.default_prompt}" if model.default_prompt else ""
    return f"prompts {', '.join(names[:MAX_SHOWN_PROMPTS])}{more}{default}"


def _gives(model: ModelFacts) -> str:
    if model.symbols:
        shown = ", ".join(model.symbols[:MAX_SHOWN_SYMBOLS])
        return f"symbols: {shown}" + ", …" * (len(model.symbols) > MAX_SHOWN_SYMBOLS)
    if model.labels:
        return ", ".join(model.labels)
    if model.embedding_kinds:
        values, words = model.embedding_size, model.sparse_size
        first = f"{values} values" if values else f"weights of {words} words"
        more = "".join(f", {kind.replace('_', ' ')}" for kind in model.embedding_kinds[1:])
        return f"{first}, {model.pooling}{more}"
    if model.embedding_size:
        return "; ".join(filter(None, (_vectors(model), _prompts(model))))
    if model.task != "text-generation":
        return ""
    sampling = sorted(model.sampling_defaults.items())  # a map of protobuf has no order
    defaults = ", ".join(f"{name} {value:g}" for name, value in sampling)
    outputs = "text and chats" if model.has_chat_template else "text"
    if model.tool_call_form:
        outputs = "text, chats and calls of functions"
    return f"{outputs}, by default with {defaults}" if defaults else outputs
