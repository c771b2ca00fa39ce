"""The networks and tasks of `attendant seq2seq`: one entry each.

Imports no PyTorch. To add a network, add an entry and a module that defines `TRAINING`; to add a
task, an entry and a function from settings to pairs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.data.generated import dates, reversal
from models.data.pairs import PairSplits, read_pairs
from models.errors import SettingError
from models.recipes.seq2seq_settings import Seq2SeqSettings

if TYPE_CHECKING:
    from models.recipes.seq2seq import Training

Values = Mapping[str, Any]
DEFAULT_NETWORK = "lstm"


@dataclass(frozen=True, slots=True)
class Network:
    """One kind of network; `defaults` are for settings that neither user nor task gives.

    What a size prescribes comes before what suits a task, whose values are of the small size.
    """

    module: str
    defaults: Values
    of_size: Mapping[str, Callable[[Seq2SeqSettings], Values]] = field(default_factory=dict)

    def load(self) -> "Training":
        """Imports PyTorch."""
        training: Training = import_module(self.module).TRAINING
        return training


@dataclass(frozen=True, slots=True)
class Task:
    """Generated pairs; `defaults` of settings by network, under "" those of all networks."""

    what: str  # the description in a command's help
    generate: Callable[[Seq2SeqSettings], PairSplits]
    defaults: Mapping[str, Values] = field(default_factory=dict)
    network: str = DEFAULT_NETWORK  # the one that learns the task, unless the user names one


def published(settings: Seq2SeqSettings) -> Values:
    """Size, dropout and learning rate of Vaswani et al. 2017, table 3 and section 5.3.

    The rate at step n is `D^-0.5 * min(n^-0.5, n * w^-1.5)`, highest at n = w, the warm-up's end.
    A warm-up that the user gives as a share of the steps takes the place of the paper's.
    """
    hidden_size = settings.hidden_size or 512
    warmup_steps = settings.warmup_steps or 4_000
    values = {
        "hidden_size": hidden_size,
        "dropout": 0.1,
        "learning_rate": (hidden_size * warmup_steps) ** -0.5,
    }
    if settings.warmup_fraction is None:
        values |= {"warmup_steps": warmup_steps, "warmup_fraction": 0.0}
    return values


NETWORKS = {
    "lstm": Network(
        "models.recipes.recurrent",
        {
            "hidden_size": 64,
            "epochs": 20,
            "batch_size": 32,
            "learning_rate": 5e-3,
            "warmup_fraction": 0.0,
            "weight_decay": 0.0,
        },
    ),
    "transformer": Network(
        "models.recipes.transformer",
        {
            "epochs": 10,
            "batch_size": 64,
            "learning_rate": 2e-3,
            "warmup_fraction": 0.2,
            "weight_decay": 0.0,
        },
        {"published": published},
    ),
}
TASKS = {
    "reversal": Task(
        "4 symbols of an alphabet of 10, reversed",
        reversal.generate,
        {
            "": {"length": 4, "symbols": 10, "samples": 2_000, "test_samples": 200},
            "lstm": {
                "hidden_size": 16,
                "epochs": 60,
                "learning_rate": 1e-2,
                "weight_decay": 0.1,
            },
        },
    ),
    "long-reversal": Task(
        "20 symbols of an alphabet of 16, reversed",
        reversal.generate,
        {
            "": {"length": 20, "symbols": 16, "samples": 16_000, "test_samples": 500},
            "lstm": {"hidden_size": 64, "epochs": 6, "learning_rate": 4e-3},
        },
    ),
    "dates": Task(
        "dates in everyday notation, converted to ISO 8601",
        dates.generate,
        {
            "": {"samples": 120_000, "test_samples": 2_000},
            # Hardly a pair comes twice, so nothing is learnt by heart that dropout would prevent.
            "transformer": {"epochs": 2, "warmup_fraction": 0.05, "dropout": 0.0},
        },
        network="transformer",
    ),
}


def prepare(task: str, settings: Seq2SeqSettings) -> tuple[PairSplits, Seq2SeqSettings]:
    """The pairs of a task, or of a file, and the settings with nothing left open."""
    known, network = TASKS.get(task), network_for(task, settings)
    settings = replace(settings, network=network)
    of_size = NETWORKS[network].of_size.get(settings.size)
    defaults = [of_size(settings)] if of_size else []
    defaults += [known.defaults.get(network, {}), known.defaults.get("", {})] if known else []
    completed = settings.completed(*defaults, NETWORKS[network].defaults)
    if known:
        return known.generate(completed), completed
    path = Path(task)
    if not path.is_file():
        raise SettingError("pairs", task, f"one of {', '.join(TASKS)}, or a file")
    return read_pairs(path, settings.test_fraction, settings.seed), completed


def network_for(task: str, settings: Seq2SeqSettings) -> str:
    """The name of the network that is to learn a task, or a file."""
    return settings.network or (TASKS[task].network if task in TASKS else DEFAULT_NETWORK)
