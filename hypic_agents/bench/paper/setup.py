"""What the experiments run on: models, questions, sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hypic_agents.bench.timing import Progress
from hypic_agents.core import Prompt

if TYPE_CHECKING:
    from hypic_agents.runtime.engine import Engine


class Asked(Protocol):
    """A question with its exact answer."""

    @property
    def prompt(self) -> Prompt: ...
    @property
    def answer_ids(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Lengths in tokens.

    Attributes:
        questions: Questions of the seam sweep.
        prompts: Prompts of the fidelity and deviation measurements.
        chunk_lens: Tokens of each of the two chunks when drift is measured on random weights, the paper's last.
        query_len: Tokens of the question behind them.
        seams: Seam widths of the sweep; 0, 8 and 32 are among them.
        lengths: Segment lengths of the first latency sweep, at four segments.
        counts: Segment counts of the second, at ``count_len`` tokens each.
        repeats: Timed repeats.
        compose_lens: Short segment, long segment and built segment of the cost of composing and building.
    """

    questions: int = 80
    prompts: int = 4
    chunk_lens: tuple[int, ...] = (64, 536)
    query_len: int = 24
    seams: tuple[int, ...] = (0, 4, 8, 16, 32)
    lengths: tuple[int, ...] = (256, 512, 1024, 2048)
    counts: tuple[int, ...] = (4, 8, 16)
    count_len: int = 512
    repeats: int = 5
    compose_lens: tuple[int, int, int] = (256, 4096, 1024)


QUICK = Sizes(
    questions=2,
    prompts=2,
    chunk_lens=(32, 64),
    query_len=8,
    seams=(0, 8, 32),
    lengths=(32, 64),
    counts=(2, 4),
    count_len=32,
    repeats=1,
    compose_lens=(32, 128, 64),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What an experiment is given.

    Attributes:
        load: Makes an engine of a model name and a dtype ("float32" or "bfloat16"); whoever calls it closes the engine.
        ask: ``ask(engine, count, seed)``: questions with answers for a trained model.
        trained: Name of the model that answers.
        timed: Name of the model whose speed is measured.
        sizes: How much is measured.
        seed: Of tokens, orders and questions.
        progress: Told of stages.
    """

    load: Callable[[str, str], Engine]
    ask: Callable[[Engine, int, int], Sequence[Asked]]
    trained: str
    timed: str
    sizes: Sizes
    seed: int
    progress: Progress
