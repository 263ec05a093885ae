"""What a page shows of a learner's memory, made when somebody looks."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from mann.online import Example, Look, OneShotLearner, Prepared
from mann.online.sight import see_one
from mann.store import is_start
from mann.web.encoding import encode_step
from mann.web.explain import Writings

KEPT_STEPS = 60  # of the memory's history


class View:
    """The memory of a learner, followed from its first example on.

    What is written where is known from teaching; where examples were taken back or came from elsewhere, they are
    shown again to a sibling. The steps are made from such a replay as well, and kept until something changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[Example, ...] = ()  # that `_writings` is about
        self._writings = Writings()
        self._shown: tuple[Example, ...] = ()  # that `_steps` is about
        self._steps: list[dict[str, Any]] = []

    def add(self, learner: OneShotLearner, look: Look) -> None:
        """The learner was just shown one more example, and made this of it."""
        examples = learner.examples
        with self._lock:
            if len(examples) == len(self._known) + 1 and is_start(self._known, examples):
                if look.memory is not None:
                    self._writings.add(len(examples), str(examples[-1].label), look.memory)
                self._known = examples

    def writings(self, learner: OneShotLearner) -> Writings:
        """What was written where so far."""
        with self._lock:
            if not _same(self._known, learner.examples):
                self._writings = Writings()
                for number, example, look, _ in _replay(learner):
                    if look.memory is not None:
                        self._writings.add(number, str(example.label), look.memory)
                self._known = learner.examples
            return self._writings

    def steps(self, learner: OneShotLearner) -> list[dict[str, Any]]:
        """The last steps, as the page reads them."""
        with self._lock:
            if not _same(self._shown, learner.examples):
                writings, steps = Writings(), []
                first = len(learner.examples) - KEPT_STEPS
                for number, example, look, sibling in _replay(learner):
                    if look.memory is None:
                        continue
                    if number > first:
                        because = writings.explain(number, see_one(look.memory), sibling.similarity)
                        step = encode_step(number, str(example.label), look.best, example.pixels, look.memory)
                        steps.append(step | {"because": because})
                    writings.add(number, str(example.label), look.memory)
                self._shown, self._steps = learner.examples, steps
            return self._steps


def _same(known: tuple[Example, ...], examples: tuple[Example, ...]) -> bool:
    return known is examples or (len(known) == len(examples) and is_start(known, examples))


def _replay(learner: OneShotLearner) -> Iterator[tuple[int, Example, Look, OneShotLearner]]:
    """Every example with its number, what the learner made of it, and the learner after it."""
    sibling = learner.sibling(seed=learner.seed, keep="nothing")
    for number, example in enumerate(learner.examples, start=1):
        picture = Prepared(example.pixels, np.zeros((1, 1), np.uint8))  # nobody looks at it
        yield number, example, sibling.look_and_learn(picture, example.label), sibling
