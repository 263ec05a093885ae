"""Asking for labels: what a network that may ask earns, at every price, beside the rule that asks when unsure."""

import dataclasses
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure
from rich.progress import Progress

from mann.data import DataConfig
from mann.evaluation import CHUNK, SEED, Evaluation, join_episodes, split_keys
from mann.experiments.entries import Entry, Network, Shipped
from mann.experiments.experiment import Experiment
from mann.experiments.networks import SETTINGS, network, seeds
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import COST, by_label, in_order, markdown_table, number, training_cost
from mann.figures.asking import AskingLine, draw_asking
from mann.memory import LRUAConfig
from mann.models import Model
from mann.tasks import Asking
from mann.tasks.asking import AskingTally
from mann.text import ordinal
from mann.trained import Trained, load_trained

TITLE = "Asking for labels: 3 classes, episodes of length 30"
PRICES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
PROTOCOL = 0.05  # the price of Woodward & Finn
THRESHOLDS = (
    0.0,
    0.05,
    0.1,
    0.2,
    0.35,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
)  # of the rule, tried on held-out classes
SHOWN = (1, 2, 5, 10)  # instances
SHIPPED = "omniglot-many"


class Play(NamedTuple):
    """A network in a number of episodes, at any price and threshold: compiled once."""

    model: Model
    task: Asking
    source: Any
    episodes: int
    key: int  # of the episodes

    def __call__(self, price: float, threshold: float) -> AskingTally:
        numbers = (jnp.float32(price), jnp.float32(threshold))
        parts = [
            jax.tree.map(np.asarray, _tally(self.model, self.task, self.source, keys, *numbers))
            for keys in split_keys(self.key, self.episodes, CHUNK)
        ]
        return join_episodes(parts, self.episodes)


@eqx.filter_jit
def _tally(
    model: Model,
    task: Asking,
    source: Any,
    keys: Key[Array, "episodes"],
    price: Float[Array, ""],
    threshold: Float[Array, ""],
) -> AskingTally:
    episodes = task.draw_batch(keys, source)
    same = jnp.ones_like(episodes.price)
    episodes = episodes._replace(price=price * same, threshold=threshold * same)
    return task.tally(task.play(model, episodes), episodes)


def measure_prices(trained: Trained, task: Asking, data: DataConfig, episodes: int) -> dict[str, Any]:
    """Tests at every price on classes never met; for the rule, after its threshold was chosen on held-out ones."""
    base = dataclasses.replace(task, price=1.0, threshold=0.5)  # one compilation for all
    unseen = base.load_unseen(data, trained.config.data, trained.seen, trained.name)
    test = Play(trained.model, base, unseen.source, episodes, SEED)
    rule = task.asks == "unsure"
    result: dict[str, Any] = {}
    tallies: dict[float, AskingTally] = {}  # of the rule: what it does depends on the threshold alone
    with Progress(transient=True) as bar:
        bar_id = bar.add_task(f"testing {trained.name}", total=len(PRICES) + rule * len(THRESHOLDS))
        if rule:
            few = max(2, episodes // 4)
            watch = Play(trained.model, base, base.load(data).held_out, few, SEED + 1)
            held_out = {}
            for threshold in THRESHOLDS:
                held_out[threshold] = watch(1.0, threshold)
                bar.advance(bar_id)
            result["held_out"] = [
                {"threshold": threshold}
                | dataclasses.replace(base, price=PROTOCOL, threshold=threshold)
                .summarise(tally, None)
                .to_json()
                for threshold, tally in held_out.items()
            ]
        evaluations = []
        for price in PRICES:
            chosen = dataclasses.replace(base, price=price, threshold=task.threshold)
            if rule:
                best = max(held_out, key=lambda t: _reward(held_out[t], price))
                chosen = dataclasses.replace(chosen, threshold=best)
                if best not in tallies:
                    tallies[best] = test(1.0, best)
                tally = tallies[best]
            else:
                tally = test(price, 0.5)
            evaluations.append(
                Evaluation(
                    trained.name,
                    unseen.dataset,
                    unseen.class_range,
                    chosen,
                    episodes,
                    chosen.summarise(tally, None),
                ).to_json()
            )
            bar.advance(bar_id)
    return result | {"prices": evaluations}


def _reward(tally: AskingTally, price: float) -> float:
    """Per episode, at a price."""
    right, asked, seen = (np.mean(part) for part in (tally.total_right, tally.total_asked, tally.total_seen))
    return float(2 * right + asked - seen - price * asked)


class Asker(Network):
    """A network that is trained to ask, or with labels at random steps for the rule; tested at every price."""

    def measure(self, folder: Path, episodes: int) -> Record | None:
        record = super().measure(folder, episodes)
        task = self.config.task
        assert isinstance(task, Asking)
        if record is not None:
            trained = load_trained(folder)._replace(name=self.name)
            record |= measure_prices(trained, task, self.config.data, episodes)  # type: ignore[typeddict-item]
        return record


@dataclasses.dataclass(frozen=True)
class ShippedAsker(Shipped):
    """The network behind `OneShotLearner`, under the rule."""

    classes: int = 3
    share: float = 0.25
    """Of the test episodes: every step goes through convolutions."""

    @property
    def task(self) -> Asking:
        """String labels, as that network has them."""
        return Asking(classes=self.classes, labels="strings", asks="unsure", novelty=True)

    def description(self) -> dict[str, Any]:
        return super().description() | {"classes": self.classes, "share": self.share}

    def measure(self, folder: Path, episodes: int) -> Record | None:
        trained = load_trained(self.model)._replace(name=self.name)
        data = self.data or trained.config.data
        record: Record = {"trained_on": trained.description["classes"], "evaluations": []}
        few = max(2, round(self.share * episodes))
        record |= measure_prices(trained, self.task, data, few)  # type: ignore[typeddict-item]
        return record


def _with_classes(classes: int) -> dict[str, Any]:
    """What else changes with the number of classes: labels are one-hot for 3, and strings for more."""
    if classes == 3:
        return {}
    return {"task": Asking(classes=classes, labels="strings"), "model__memory": LRUAConfig(slots=128)}


def _asker(classes: int, model: str, rule: bool, scale: Scale, seed: int) -> Asker:
    changes = _with_classes(classes)
    if model == "lstm":
        changes.pop("model__memory", None)
    task = changes.pop("task", SETTINGS["asking-3"].task)
    task = dataclasses.replace(task, asks="unsure") if rule else task
    entry = network(
        "asking-3",
        model,
        scale,
        seed,
        suffix=f"-{classes}{'-rule' if rule else ''}",
        label=f"{NAMES[model]}, {'asks when unsure (rule)' if rule else 'learned to ask'}{_of(classes)}",
        tests=(),
        task=task,
        model__precision="bfloat16",
        **changes,
    )
    return Asker(entry.name, entry.label, entry.config, entry.tests)


NAMES = {"mann": "LRUA", "lstm": "LSTM without memory"}


def _of(classes: int) -> str:
    return "" if classes == 3 else f", {classes} classes"


def entries(scale: Scale) -> list[Entry]:
    """Learned and rule, with and without memory, two seeds at 3 classes; then more classes; then what ships."""
    if scale == "smoke":
        return [_asker(3, "mann", False, scale, 0), _asker(3, "lstm", True, scale, 0)]
    return [
        *(
            _asker(3, model, rule, scale, seed)
            for rule in (False, True)
            for model in NAMES
            for seed in seeds(scale)
        ),
        *(_asker(classes, "mann", rule, scale, 0) for classes in (5, 15) for rule in (False, True)),
        *(
            ShippedAsker(f"shipped-{classes}", f"{SHIPPED}, rule{_of(classes)}", SHIPPED, (), None, classes)
            for classes in (3, 5, 15)
        ),
    ]


def _at(record: Record, price: float) -> dict[str, Any]:
    """The test at a price."""
    return next(test for test in record["prices"] if test["price"] == price)


def _rows(records: Records) -> dict[str, list[Record]]:
    """The runs of every row, by label, in the order of the entries."""
    return by_label(in_order(entries("full"), records))


def table(records: Records) -> Table:
    columns = ["network", "reward", "of", "requests %", "answers right %"]
    columns += [f"{ordinal(i)}: right / asked %" for i in SHOWN] + ["threshold", COST]
    rows = []
    for label, runs in _rows(records).items():
        tests = [_at(run, PROTOCOL) for run in runs]
        cells = [_over(tests, lambda test: test["reward"], ".2f")]
        cells.append(str(tests[0]["length"]))
        cells.append(_over(tests, lambda test: _scaled(test["requests"]), ".1f"))
        cells.append(_over(tests, lambda test: _scaled(test["precision"]), ".1f"))
        for instance in SHOWN:
            found = [cell for test in tests for cell in test["instances"] if cell["instance"] == instance]
            right, asked = (
                100 * np.mean([cell[key] for cell in found]) if found else np.nan
                for key in ("accuracy", "requests")
            )
            cells.append(f"{number(right)} / {number(asked)}")
        thresholds = [f"{test['threshold']:g}" for test in tests if test["threshold"] is not None]
        rows.append([label, *cells, ", ".join(thresholds), training_cost(runs)])
    return Table(TITLE, columns, rows, NOTE)


NOTE = (
    "At the price 0.05, on classes never trained on: +1 for a right answer, −1 for a wrong one, −0.05 for a "
    "request, which counts as not right. One run: ± half of the 95 % interval over episodes; several runs (seeds): "
    "their mean, and [lowest, highest]. If one label per class is enough, 2 of 30 requests (6.7 %) suffice with 3 "
    "one-hot labels, where the last class is known by elimination, and 3 (10 %) with string labels, as those of "
    "omniglot-many. The threshold of the rule was chosen on held-out classes, for every price."
)


def _scaled(cell: dict[str, float | None]) -> dict[str, float]:
    return {key: np.nan if value is None else 100 * value for key, value in cell.items()}


def _over(tests: list[dict[str, Any]], read: Any, form: str) -> str:
    """A number of one run with its interval, or the mean of several with their range."""
    found = [read(test) for test in tests]
    values = [cell["value"] for cell in found]
    if len(values) == 1:
        return number(values[0], f" ±{(found[0]['high'] - found[0]['low']) / 2:{form}}", form)
    return number(float(np.mean(values)), f" [{min(values):{form}}, {max(values):{form}}]", form)


def _lines(records: Records) -> list[AskingLine]:
    """Of 3 classes: the mean over runs at every price."""
    lines = []
    for label, runs in _rows(records).items():
        if runs[0]["prices"][0]["classes"] != 3:
            continue
        prices = [test["price"] for test in runs[0]["prices"]]
        reward, requests, precision = (
            np.mean(
                [
                    [np.nan if (v := _at(run, price)[key]["value"]) is None else v for price in prices]
                    for run in runs
                ],
                axis=0,
            )
            for key in ("reward", "requests", "precision")
        )
        lines.append(AskingLine(label, prices, reward, 100 * requests, 100 * precision))
    return lines


def figures(records: Records) -> dict[str, Figure]:
    lines = _lines(records)
    return {"asking": draw_asking(lines, floor=100 * 2 / 30)} if lines else {}


def page(records: Records) -> str:
    """docs/asking.md: the text in `asking.md` with what was measured."""
    results = table(records)
    text = (resources.files("mann") / "experiments" / "asking.md").read_text()
    return text.format(
        results=markdown_table(results.columns, results.rows),
        note=results.note,
        prices=_prices(records),
        verdict=_verdict(records),
    )


def _prices(records: Records) -> str:
    """Reward, requests and right answers of every row at every price."""
    columns = ["network", *(f"{price:g}" for price in PRICES)]
    rows = []
    for line in _lines(records):
        cells = [
            f"{reward:.1f} ({asked:.1f} %, {right:.1f} %)"
            for reward, asked, right in zip(line.reward, line.requests, line.precision, strict=True)
        ]
        rows.append([line.label, *cells])
    return markdown_table(columns, rows)


def _verdict(records: Records) -> str:
    """Whether learning to ask beats the rule with the same network, in words."""
    rows = _rows(records)
    sentences = []
    for name in NAMES.values():
        learned = rows.get(f"{name}, learned to ask", [])
        rule = rows.get(f"{name}, asks when unsure (rule)", [])
        if not learned or not rule:
            continue
        ours, simple = (
            np.array([[_at(run, price)["reward"]["value"] for price in PRICES] for run in runs]).mean(0)
            for runs in (learned, rule)
        )
        place = PRICES.index(PROTOCOL)
        verb = "more" if ours[place] > simple[place] else "less"
        better = [f"{price:g}" for price, a, b in zip(PRICES, ours, simple, strict=True) if a > b]
        sentences.append(
            f"{name}: learning to ask earns {abs(ours[place] - simple[place]):.2f} {verb} than the rule at the "
            f"price {PROTOCOL:g}; the prices at which it earns more: {', '.join(better) or 'none'}."
        )
    return " ".join(sentences) or (
        "Whether learning to ask earns more than the rule with the same network: the rows that would tell have not "
        "all been measured yet."
    )


EXPERIMENT = Experiment(entries, table, figures, page)
