"""Active one-shot learning (after Woodward & Finn 2017): name what you see, or pay for being told.

How the network learns when to ask. The answers are learnt by their likelihood at every step, given the labels that
were asked for. What a request is worth is learnt from pairs of episodes that are the same up to one step, at which
one asks and the other does not; after it, both do what the network thinks best. Between the two, the difference in
the reward of all answers, and that in the number of requests, are what the network is to foretell at that step. It
asks where the one outweighs the other at the price of the episode.
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from mann.data.render import Drawings, Transform
from mann.episodes import Episode, time_offset
from mann.errors import MannError, check_range
from mann.metrics import InstanceCounts, accuracy_by_instance, count_by_instance
from mann.outputs import Letters, LettersOrAsk, LettersOrNew
from mann.paper import PaperRow
from mann.statistics import Interval, mean_by_episode, or_none, wilson_by_episode
from mann.tasks.base import Network, ResultTable, Stage
from mann.tasks.classification import Classification

CHEAPEST, DEAREST = 1e-3, 1e3  # prices that can be meant, for a reward of ±1 per answer
UNDECIDED = -1  # of `forced`


class AskingEpisode(NamedTuple):
    """An `Episode` with a price."""

    inputs: Float[Array, "*batch time features"]
    targets: Float[Array, "*batch time label"]
    classes: Int[Array, "*batch time"]
    instances: Int[Array, "*batch time"]
    mask: Bool[Array, "*batch time"]
    price: Float[Array, "*batch"]
    """Of a request; a right answer earns 1, a wrong one costs 1."""
    threshold: Float[Array, "*batch"]
    """Of the rule, for a network that has not learnt when to ask."""
    forced: Int[Array, "*batch time"]
    """1 where it must ask and 0 where it must answer, in training; −1 where the network decides."""


class Asked(NamedTuple):
    """What a network did in a batch of episodes."""

    outputs: Float[Array, "batch time size"]
    asked: Bool[Array, "batch time"]


class AskingTally(NamedTuple):
    """What is counted; an answer is right or wrong, a request neither."""

    right: InstanceCounts
    asked: InstanceCounts
    total_right: Float[Array, "batch"]
    total_asked: Float[Array, "batch"]
    total_seen: Float[Array, "batch"]
    nll: Float[Array, "batch time"]


@dataclasses.dataclass(frozen=True)
class Asking(Classification, kind="asking"):
    """Classification in which a label is told only where the network asked for it, at a price, and named nothing.

    The price goes in at every step, as one number beside the label. As in the authors' code, a class is turned by
    a multiple of 90°; small rotations and shifts are for training alone.

    Raises:
        MannError: for prices that cannot be meant, or a pool.

    Examples:
        >>> task = Asking(classes=3)
        >>> task.steps, task.label_size, task.output.size
        (30, 4, 5)
    """

    classes: int = 3
    """Classes in an episode (N)."""
    price: float = 0.05
    """Of a request, in held-out and test episodes; a right answer earns 1, a wrong one costs 1."""
    prices: tuple[float, float] = (0.02, 10.0)
    """The lowest and the highest in training, where every episode has its own, even on a logarithmic scale."""
    asks: Literal["learned", "unsure"] = "learned"
    """Learned: where the network foretells that it pays. Unsure: where no label is as probable as `threshold`."""
    threshold: float = 0.7
    """Of the rule `unsure`."""
    novelty: bool = False
    """For the rule: whether the network also states how probable something new is, as those of the task many do."""
    weight: float = 0.03
    """Of the squared errors in what a request is worth, beside −log p(y_t) in nats per step."""
    practice: float = 0.5
    """Share of the pairs in training that part nowhere, with labels at random steps: for the answers alone."""
    moved: bool = False
    """Rotate and shift a little in held-out and test episodes, too, as the paper does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for price in (self.price, *self.prices):
            check_range("The price of a request", price, CHEAPEST, DEAREST)
        if self.prices[0] > self.prices[1]:
            raise MannError("The lowest price in training must not be above the highest.")
        check_range("The threshold of the rule", self.threshold, 0, 1)
        check_range("The share of episodes for practice", self.practice, 0, 1)
        check_range("The weight of what a request is worth", self.weight, 0, 1e6)
        if self.pool.episodes:
            raise MannError("Episodes in which a network asks share no pool: set task.pool.episodes to 0.")

    @property
    def label_size(self) -> int:
        return self.label_code.size + (self.asks == "learned")

    @property
    def output(self) -> Letters:
        if self.asks == "learned":
            return self.values
        return LettersOrNew(self.label_code) if self.novelty else Letters(self.label_code)

    @property
    def values(self) -> LettersOrAsk:
        """The distribution over labels, with what a request is worth."""
        return LettersOrAsk(self.label_code)

    @property
    def names(self) -> Letters:
        raise MannError(
            "This model was trained to ask for labels within an episode, not to be taught by hand: choose another, "
            "and let OneShotLearner.ask_one decide what to ask for."
        )

    @property
    def together(self) -> int:
        return 2 if self.asks == "learned" else 1  # a pair

    def transform(
        self, rotation: Float[Array, "time"], shift: Float[Array, "time 2"], quarter: Int[Array, "time"]
    ) -> Transform:
        if not self.moved:
            rotation, shift = jnp.zeros_like(rotation), jnp.zeros_like(shift)
        return super().transform(rotation, shift, quarter)

    def draw(  # type: ignore[override]
        self, key: PRNGKeyArray, source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> AskingEpisode:
        episode: Episode = super().draw(key, source, size)
        decides = jnp.full(self.steps, UNDECIDED, jnp.int32)
        price, threshold = (jnp.asarray(number, jnp.float32) for number in (self.price, self.threshold))
        drawn = {name: value for name, value in episode._asdict().items() if name != "told"}
        return AskingEpisode(**drawn, price=price, threshold=threshold, forced=decides)

    def draw_training(  # type: ignore[override]
        self, keys: Key[Array, "batch"], source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> AskingEpisode:
        """As `draw_batch`, in pairs that differ in one forced step; for the rule, with labels at random steps."""
        moved = dataclasses.replace(self, moved=True)
        if self.asks == "unsure":
            episodes = moved.draw_batch(keys, source, size)
            return episodes._replace(forced=jax.vmap(self._at_random)(keys))
        pairs = moved.draw_batch(keys[::2], source, size)
        price, first, second = jax.vmap(self._branches)(keys[::2])
        both = jax.tree.map(lambda leaf: jnp.repeat(leaf, 2, axis=0), pairs._replace(price=price))
        forced = jnp.stack([first, second], axis=1).reshape(len(keys), self.steps)
        return both._replace(forced=forced)

    def _at_random(self, key: PRNGKeyArray) -> Int[Array, "time"]:
        """Every step by chance, at a rate that differs from episode to episode."""
        rate_key, step_key = jax.random.split(jax.random.fold_in(key, 1))
        rate = jax.random.uniform(rate_key)
        return jax.random.bernoulli(step_key, rate, (self.steps,)).astype(jnp.int32)

    def _branches(self, key: PRNGKeyArray) -> tuple[Float[Array, ""], Int[Array, "time"], Int[Array, "time"]]:
        """The price of a pair, and what is forced in the one and in the other.

        Before the step at which they part, some decisions are taken by chance, so that all kinds of pasts come up.
        """
        chance = jax.random.split(jax.random.fold_in(key, 1), 8)
        low, high = (math.log(price) for price in self.prices)
        price = jnp.exp(jax.random.uniform(chance[0], minval=low, maxval=high))
        steps = jnp.arange(self.steps)
        parting = (self.steps * jax.random.uniform(chance[1]) ** 2).astype(
            jnp.int32
        )  # early ones matter more
        by_chance = jax.random.bernoulli(chance[2], jax.random.uniform(chance[3]) ** 2, (self.steps,))
        forced = jnp.where(by_chance & (steps < parting), self._at_random(chance[4]), UNDECIDED)
        practice = jax.random.bernoulli(chance[5], self.practice)

        def branch(asks: int, key: PRNGKeyArray) -> Int[Array, "time"]:
            return jnp.where(practice, self._at_random(key), jnp.where(steps == parting, asks, forced))

        return price, branch(1, chance[6]), branch(0, chance[7])

    def wants(
        self, outputs: Float[Array, "batch size"], episodes: AskingEpisode, told: Bool[Array, "batch"]
    ) -> Bool[Array, "batch"]:
        """Whether it asks rather than answers.

        Args:
            outputs: of the network, at one step.
            episodes: with their prices, and with the thresholds of the rule.
            told: whether any label was told so far: the rule begins with a request.
        """
        if self.asks == "unsure":
            return (self.output.sureness(outputs) < episodes.threshold) | ~told
        return self.values.worth(outputs) > episodes.price * self.values.requests(outputs)

    def unroll(self, network: Network, episodes: AskingEpisode, state: Any = None) -> tuple[Asked, Any]:
        # First step by step, to see where it asks; then with those labels, all at once and differentiable.
        arrays, static = eqx.partition((network, state), eqx.is_array)
        frozen, start = eqx.combine(jax.lax.stop_gradient(arrays), static)  # decisions have no gradient
        asked = jax.lax.cond(
            jnp.all(episodes.forced != UNDECIDED),
            lambda: episodes.forced == 1,
            lambda: self.play(frozen, episodes, start).asked,
        )
        labels = jnp.where(asked[..., None], episodes.targets, 0.0)
        outputs, last, _ = network.unroll_batch(
            episodes.inputs, self._beside(time_offset(labels), episodes.price[:, None]), state
        )
        return Asked(outputs, asked), last

    def _beside(
        self, labels: Float[Array, "*batch label"], price: Float[Array, "..."]
    ) -> Float[Array, "*batch label_and_price"]:
        """Labels with the price, on a logarithmic scale; the rule is not told it."""
        if self.asks == "unsure":
            return labels
        number = jnp.broadcast_to(jnp.log10(price)[..., None], (*labels.shape[:-1], 1))
        return jnp.concatenate([labels, number], axis=-1)

    def play(self, network: Network, episodes: AskingEpisode, state: Any = None) -> Asked:
        """What a network does, one step at a time: all that a test needs.

        Args:
            network: a `Model`, or what has its methods.
            episodes: a batch of them.
            state: a batch of states to start from; wiped ones if left out.
        """
        batch = len(episodes.inputs)
        if state is None:
            start = network.initial_state()
            state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), start)

        def step(carry: tuple[Any, Array, Array], now: tuple[Array, Array, Array]) -> tuple[Any, Asked]:
            state, label, told = carry
            x, target, forced = now
            outputs, state = jax.vmap(network.step)(x, self._beside(label, episodes.price), state)
            wants = self.wants(outputs, episodes, told)
            asks = jnp.where(forced == UNDECIDED, wants, forced == 1)
            return (state, jnp.where(asks[:, None], target, 0.0), told | asks), Asked(outputs, asks)

        by_time = (episodes.inputs, episodes.targets, episodes.forced)
        by_time = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), by_time)
        start = (state, jnp.zeros_like(episodes.targets[:, 0]), jnp.zeros(batch, bool))
        done: Asked = jax.lax.scan(step, start, by_time)[1]
        played: Asked = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), done)
        return played

    def loss(self, outputs: Asked, episodes: AskingEpisode) -> Float[Array, "batch"]:
        """−log p(y_t) of every step, asked or not; and of pairs, how wrong it was about what a request is worth."""
        answers = super().loss(outputs.outputs, episodes)
        if self.asks == "unsure":
            return answers
        return answers + self.weight * self.worth_error(outputs, episodes)

    def worth_error(self, outputs: Asked, episodes: AskingEpisode) -> Float[Array, "batch"]:
        """Half the squared errors in reward and in requests, at the step where a pair parts; alike for both."""
        correct = self.output.correct(outputs.outputs, episodes.targets)
        answered = ~outputs.asked & episodes.mask
        earned = jnp.sum(jnp.where(answered, jnp.where(correct, 1.0, -1.0), 0.0), axis=1).reshape(-1, 2)
        requests = jnp.sum(outputs.asked & episodes.mask, axis=1).astype(jnp.float32).reshape(-1, 2)
        pairs = episodes.forced.reshape(-1, 2, self.steps)
        parting = jnp.repeat(pairs[:, 0] != pairs[:, 1], 2, axis=0)

        def there(values: Float[Array, "batch time"]) -> Float[Array, "batch"]:
            return jnp.sum(jnp.where(parting, values, 0.0), axis=1)

        worth = jnp.repeat(earned[:, 0] - earned[:, 1], 2)
        more = jnp.repeat(requests[:, 0] - requests[:, 1], 2)
        errors = (there(self.values.worth(outputs.outputs)) - worth) ** 2
        errors += (there(self.values.requests(outputs.outputs)) - more) ** 2
        undecided = jnp.any(episodes.forced == UNDECIDED, axis=1)  # else it was practice
        return jnp.where(undecided, 0.5 * errors, 0.0)

    def tally(self, outputs: Asked, episodes: AskingEpisode) -> AskingTally:  # type: ignore[override]
        right = self.output.correct(outputs.outputs, episodes.targets) & ~outputs.asked
        by_instance = (episodes.instances, episodes.mask)

        def total(where: Bool[Array, "batch time"]) -> Float[Array, "batch"]:
            return jnp.sum(where & episodes.mask, axis=1).astype(jnp.float32)

        return AskingTally(
            count_by_instance(right, *by_instance),
            count_by_instance(outputs.asked, *by_instance),
            total(right),
            total(outputs.asked),
            total(episodes.mask),
            self.output.nll(outputs.outputs, episodes.targets),
        )

    def record(self, tally: AskingTally) -> dict[str, Any]:  # type: ignore[override]
        result = self.summarise(tally, None)
        return {
            "held_out_loss": float(np.mean(np.asarray(tally.nll, np.float64))),
            "reward": result.reward.value,
            "requests": result.requests.value,
            "precision": or_none(result.precision.value),
            "accuracy": [or_none(cell.value) for cell in result.accuracy],
        }

    def score(self, record: dict[str, Any]) -> float:
        return float(record["reward"])

    def headline(self, record: dict[str, Any]) -> str:
        precision = record["precision"]
        right = "–" if precision is None else f"{100 * precision:.1f} %"
        return (
            f"held-out reward {record['reward']:.2f} of {self.steps}, requests {100 * record['requests']:.1f} %, "
            f"answers right {right}"
        )

    def summarise(self, tally: AskingTally, reference: Any) -> "AskingResult":  # type: ignore[override]
        right, asked, seen = (
            np.asarray(part, np.float64) for part in (tally.total_right, tally.total_asked, tally.total_seen)
        )
        mean, half = mean_by_episode((2 * right + asked - seen - self.price * asked)[:, None])
        reward = Interval(float(mean[0]), float(mean[0] - half[0]), float(mean[0] + half[0]), len(right))
        answered = np.asarray(tally.right.seen) - np.asarray(tally.asked.correct)
        return AskingResult(
            self,
            reward,
            wilson_by_episode(asked, seen),
            wilson_by_episode(right, seen - asked),
            accuracy_by_instance(tally.right),
            accuracy_by_instance(tally.asked),
            accuracy_by_instance(InstanceCounts(tally.right.correct, answered)),
        )

    def paper_rows(self, controller: str, memory: str) -> list[PaperRow]:
        return []

    def stage(self, classes: int) -> Stage:
        raise MannError("Episodes in which a network asks do not grow: set curriculum.every to 0.")

    @property
    def least_requests(self) -> int:
        """Of a learner that knows every class after one label: all but one, or with string labels all."""
        return self.classes - 1 if self.label_code.capacity == self.classes else self.classes


@dataclasses.dataclass(frozen=True)
class AskingResult:
    """What asking brought, over whole episodes and by instance."""

    task: Asking
    reward: Interval
    """Per episode: +1 for a right answer, −1 for a wrong one, less the price of requests."""
    requests: Interval
    """Share of the steps at which it asked."""
    precision: Interval
    """Share of its answers that were right."""
    accuracy: list[Interval]
    """By instance: right answers among all steps, so that a request counts as not right."""
    asked: list[Interval]
    """By instance: requests among all steps."""
    answers: list[Interval]
    """By instance: right answers among answers."""

    def to_json(self) -> dict[str, Any]:
        return {
            "classes": self.task.classes,
            "labels": self.task.labels,
            "price": self.task.price,
            "asks": self.task.asks,
            "threshold": self.task.threshold if self.task.asks == "unsure" else None,
            "least_requests": self.task.least_requests,
            "reward": _cell(self.reward),
            "requests": _cell(self.requests),
            "precision": _cell(self.precision),
            "instances": [
                {
                    "instance": number,
                    "accuracy": right.value,
                    "low": right.low,
                    "high": right.high,
                    "count": right.samples,
                    "requests": asked.value,
                    "precision": or_none(answers.value),
                    "reward": self._reward(right, asked),
                }
                for number, (right, asked, answers) in enumerate(self._cells(), start=1)
                if right.samples
            ],
        }

    def _cells(self) -> list[tuple[Interval, Interval, Interval]]:
        return list(zip(self.accuracy, self.asked, self.answers, strict=True))

    def _reward(self, right: Interval, asked: Interval) -> float:
        """Per step: right less wrong less what was paid."""
        return right.value - (1 - right.value - asked.value) - self.task.price * asked.value

    def table(self, paper: list[PaperRow]) -> ResultTable:
        rows = []
        for number, (right, asked, answers) in enumerate(self._cells(), start=1):
            if right.samples:
                precision = "–" if math.isnan(answers.value) else f"{100 * answers.value:.1f}"
                shares = [f"{100 * cell.value:.1f}" for cell in (right, asked)]
                rows.append([str(number), *shares, precision, f"{self._reward(right, asked):+.3f}"])
        half = (self.reward.high - self.reward.low) / 2
        steps = self.task.steps
        notes = [
            f"Reward {self.reward.value:.2f} ±{half:.2f} of {steps} per episode at a price of {self.task.price:g}; "
            f"requests at {100 * self.requests.value:.1f} % of the steps "
            f"({steps * self.requests.value:.2f} of {steps}; {self.task.least_requests} if one label per class is "
            f"enough); {100 * self.precision.value:.1f} % of the answers right.",
            "In % of the steps; a request counts as not right.",
        ]
        columns = ["instance", "right", "requests", "right among answers", "reward per step"]
        return ResultTable(columns, rows, notes)


def _cell(interval: Interval) -> dict[str, float | None]:
    numbers = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: or_none(value) for name, value in numbers.items()}
