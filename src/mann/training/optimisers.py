"""How gradients become updates: Muon, AdamW, or the paper's RMSProp, each with its schedule and clipping."""

import abc
import dataclasses
import math
from typing import Any, Literal

import optax

from mann.errors import MannError, check_range
from mann.layers import Precision
from mann.parts import Part
from mann.training.muon import muon

MOST = 10**9


@dataclasses.dataclass(frozen=True)
class OptimiserConfig(Part):
    """The family of optimisers. The base of one's own, which has a `rule`.

    Raises:
        MannError: for numbers that cannot be meant, such as a learning rate of 0.

    Examples:
        >>> import jax.numpy as jnp
        >>> optimiser = AdamW(learning_rate=1e-3, warmup=0, schedule="constant").build(updates=100)
        >>> weights = {"bias": jnp.zeros(3)}
        >>> changes, state = optimiser.update({"bias": jnp.ones(3)}, optimiser.init(weights), weights)
        >>> float(changes["bias"][0]) < 0
        True
    """

    learning_rate: float = 1e-3
    """The largest, after the warm-up."""
    warmup: int = 300
    """Updates over which the learning rate rises from zero."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """After the warm-up: fall to zero along a cosine over the whole run, or stay."""
    clip: float = 10.0
    """Largest norm of the gradient of all weights together; 0 means no clipping."""

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise MannError(f"The learning rate must be a positive number, not {self.learning_rate}.")
        for field in ("warmup", "clip"):
            check_range(f"optimiser.{field}", getattr(self, field), 0, MOST)

    @abc.abstractmethod
    def rule(
        self, rate: optax.ScalarOrSchedule, blocks: Any, devices: int, precision: Precision
    ) -> optax.GradientTransformation:
        """The rule for a learning rate.

        Args:
            rate: the learning rate, or a schedule of it.
            blocks: of every array, in how many blocks it is a matrix (`matrix_blocks`).
            devices: on several, inside `shard_map`, some of the work may be shared.
            precision: of its matrix products, if it has any.
        """

    def check_length(self, updates: int) -> None:
        """Refuse a run that is over before the warm-up is.

        Args:
            updates: length of the run.

        Raises:
            MannError: if the warm-up does not fit into it.
        """
        if self.warmup >= updates:
            raise MannError(
                f"A warm-up of {self.warmup} updates does not fit into a run of {updates}: shorten it."
            )

    def build(
        self, updates: int, blocks: Any = None, devices: int = 1, precision: Precision = "float32"
    ) -> optax.GradientTransformation:
        """The whole optimiser for a run: clipping, the rule, and its schedule.

        Args:
            updates: length of the run.
            blocks: as in `rule`; only Muon asks for it.
            devices: as in `rule`.
            precision: as in `rule`.

        Raises:
            MannError: as `check_length` does.
        """
        self.check_length(updates)
        rate: optax.ScalarOrSchedule = self.learning_rate
        if self.schedule == "cosine":
            rate = optax.warmup_cosine_decay_schedule(0.0, self.learning_rate, self.warmup, updates)
        elif self.warmup:
            rate = optax.linear_schedule(0.0, self.learning_rate, self.warmup)
        rule = self.rule(rate, blocks, devices, precision)
        return optax.chain(optax.clip_by_global_norm(self.clip), rule) if self.clip else rule


@dataclasses.dataclass(frozen=True)
class AdamW(OptimiserConfig, kind="adamw"):
    """AdamW for all weights."""

    weight_decay: float = 0.0
    beta2: float = 0.999
    """Decay of the second moment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("optimiser.weight_decay", self.weight_decay, 0, MOST)
        _check_decay("beta2", self.beta2)

    def rule(
        self, rate: optax.ScalarOrSchedule, blocks: Any, devices: int, precision: Precision
    ) -> optax.GradientTransformation:
        return optax.adamw(rate, b2=self.beta2, weight_decay=self.weight_decay)


@dataclasses.dataclass(frozen=True)
class Muon(AdamW, kind="muon"):
    """Muon for the weight matrices and AdamW for the rest."""

    def rule(
        self, rate: optax.ScalarOrSchedule, blocks: Any, devices: int, precision: Precision
    ) -> optax.GradientTransformation:
        others = super().rule(rate, blocks, devices, precision)
        return muon(rate, self.weight_decay, blocks, devices, others, precision)


@dataclasses.dataclass(frozen=True)
class RMSProp(OptimiserConfig, kind="rmsprop"):
    """Centred RMSProp with momentum as in the paper (after Graves 2013)."""

    decay: float = 0.95
    """Decay of the moving averages of the gradient and of its square."""
    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_decay("decay", self.decay)
        _check_decay("momentum", self.momentum)

    def rule(
        self, rate: optax.ScalarOrSchedule, blocks: Any, devices: int, precision: Precision
    ) -> optax.GradientTransformation:
        return optax.rmsprop(
            rate, self.decay, eps=1e-4, eps_in_sqrt=True, centered=True, momentum=self.momentum
        )


def _check_decay(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise MannError(f"optimiser.{name} must lie in [0, 1), not {value}.")
