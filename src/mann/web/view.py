"""What a page shows of a learner's memory, made when somebody looks."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mann.online import Example, Look, OneShotLearner, Prepared
from mann.web.encoding import encode_step
from mann.web.explain import Writings

KEPT_STEPS = 60  # of the memory's history


class View:
    """The memory of a learner, followed from its first example on.

    What is written where is known from teaching; where examples were taken back or came from elsewhere, they are
    shown again to a sibling. The steps are made from such a replay as well, and kept until something is taught.
    """

    def __init__(self, learner: OneShotLearner) -> None:
        self._learner = learner
        self._writings: Writings | None = None if learner.examples else Writings()
        self._steps: list[dict[str, Any]] | None = None

    def add(self, look: Look, label: str) -> None:
        """The learner was just shown one more example."""
        self._steps = None
        if self._writings is not None and look.memory is not None:
            self._writings.add(len(self._learner.examples), label, look.memory)

    @property
    def writings(self) -> Writings:
        """What was written where so far."""
        if self._writings is None:
            writings = Writings()
            for number, example, look, _ in self._replay():
                if look.memory is not None:
                    writings.add(number, str(example.label), look.memory)
            self._writings = writings
        return self._writings

    def steps(self) -> list[dict[str, Any]]:
        """The last steps, as the page reads them."""
        if self._steps is None:
            writings, steps = Writings(), []
            first = len(self._learner.examples) - KEPT_STEPS
            for number, example, look, sibling in self._replay():
                if look.memory is None:
                    continue
                if number > first:
                    because = writings.explain(number, look.memory, sibling.similarity)
                    step = encode_step(number, str(example.label), look.best, example.pixels, look.memory)
                    steps.append(step | {"because": because})
                writings.add(number, str(example.label), look.memory)
            self._writings, self._steps = writings, steps
        return self._steps

    def _replay(self) -> Iterator[tuple[int, Example, Look, OneShotLearner]]:
        """Every example with its number, what the learner made of it, and the learner after it."""
        sibling = self._learner.sibling(seed=self._learner.seed, keep="nothing")
        for number, example in enumerate(self._learner.examples, start=1):
            unused = np.zeros((1, 1), np.uint8)
            yield (
                number,
                example,
                sibling.look_and_learn(Prepared(example.pixels, unused), example.label),
                sibling,
            )
