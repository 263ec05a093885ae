"""The network as plain Equinox modules in a training loop of one's own: functions of a Gaussian process."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import mann


def train(updates=300, batch=16):
    task = mann.Regression(length=30)
    model = mann.build_model(mann.ModelConfig(), task, key=jax.random.key(0))
    optimiser = optax.adam(3e-3)

    @eqx.filter_jit
    def update(model, state, key):
        @eqx.filter_value_and_grad
        def loss(model):
            episodes = task.draw_batch(jax.random.split(key, batch))
            outputs = model.unroll_batch(episodes.inputs, mann.time_offset(episodes.targets)).outputs
            return jnp.mean(task.output.nll(outputs, episodes.targets))

        value, gradient = loss(model)
        changes, state = optimiser.update(gradient, state)
        return eqx.apply_updates(model, changes), state, value

    state, losses = optimiser.init(eqx.filter(model, eqx.is_array)), []
    for number in range(updates):
        model, state, value = update(model, state, jax.random.key(number))
        losses.append(float(value))
    return model, losses


if __name__ == "__main__":
    for number, value in enumerate(train()[1], start=1):
        if number % 50 == 0:
            print(f"update {number}: {value:.3f} nats per point")
