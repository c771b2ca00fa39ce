"""All measures, in the order of their pages. What needs torch or an exporter imports it late."""

from loadtests.measure.accuracy import ACCURACY
from loadtests.measure.adapters import ADAPTERS
from loadtests.measure.batching import BATCHING
from loadtests.measure.bulk import BULK
from loadtests.measure.cost import COST
from loadtests.measure.folders import FOLDERS
from loadtests.measure.generation import OVERHEAD
from loadtests.measure.grammars import GRAMMARS
from loadtests.measure.instructions import INSTRUCTIONS
from loadtests.measure.limits import LIMITS
from loadtests.measure.observability import OBSERVABILITY
from loadtests.measure.prefixes import PREFIXES
from loadtests.measure.startup import STARTUP
from loadtests.measure.steps import STEPS

MEASURES = (
    BATCHING,
    COST,
    INSTRUCTIONS,
    BULK,
    STEPS,
    LIMITS,
    OVERHEAD,
    PREFIXES,
    GRAMMARS,
    ADAPTERS,
    ACCURACY,
    STARTUP,
    FOLDERS,
    OBSERVABILITY,
)
