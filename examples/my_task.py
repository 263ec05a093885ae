"""A task of one's own, in which the network decides what it is told: the label comes only after a wrong answer.

mann train examples/my_task.py:config --run runs/corrected
mann eval runs/corrected --use examples/my_task.py
"""

import dataclasses

import jax
import jax.numpy as jnp

import mann


@dataclasses.dataclass(frozen=True)
class Corrected(mann.Classification, kind="corrected"):
    """Episodes, labels, loss and accuracy are those of the paper; what goes in with the next picture is not."""

    def unroll(self, network, episodes, state=None):
        """One step at a time: y_{t−1} goes in if the answer at t − 1 was wrong, and nothing if it was right."""

        def episode(inputs, targets, state):
            def step(carry, now):
                state, told = carry
                x, target = now
                output, state = network.step(x, told, state)
                right = self.output.correct(output, target)
                return (state, jnp.where(right, 0.0, target)), output

            nothing = jnp.zeros(self.label_size)
            (state, _), outputs = jax.lax.scan(step, (state, nothing), (inputs, targets))
            return outputs, state

        if state is None:
            start = network.initial_state()
            batch = len(episodes.inputs)
            state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *leaf.shape)), start)
        return jax.vmap(episode)(episodes.inputs, episodes.targets, state)


config = mann.Config(
    task=Corrected(classes=5),
    data=mann.Glyphs(),
    updates=4000,
    evaluate_every=500,
    averaging=0.99,
)
