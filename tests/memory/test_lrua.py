"""The LRUA module over several steps against the loops of the oracle, for every reading of the paper."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.errors import MannError
from mann.memory import LRUA, PAPER_MEMORY, LRUAConfig, LRUAState, addressing
from tests.oracles import lrua

H, M, W, R = 8, 10, 5, 2
SIZES = {"slots": M, "width": W, "heads": R}
STEPS = 12  # more than slots: every slot is used and used again

# Every value of every field beside the defaults, and all combinations of the fields that interact.
VARIANTS = {
    "default": LRUAConfig(),
    "literal": PAPER_MEMORY,
    "key_strength=none": LRUAConfig(key_strength="none"),
    "initial_strength=2": LRUAConfig(initial_strength=2.0),
    "written=key": LRUAConfig(written="key"),
    "decay=0": LRUAConfig(decay=0.0),
    "decay=0.5": LRUAConfig(decay=0.5),
    "decay=1": LRUAConfig(decay=1.0),
    **{
        f"{order}, {least}, erased={erased}": LRUAConfig(order=order, least_used=least, erased=erased)
        for order, least, erased in itertools.product(
            ["write_first", "read_first"], ["shared", "per_head"], ["one", "all", "none"]
        )
    },
}
call = eqx.filter_jit(lambda module, query, state: module(query, state))


def build(config, scale=3.0):
    """A module whose weights are large enough that gates and keys really differ from step to step."""
    module = LRUA(H, dataclasses.replace(config, **SIZES), key=jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf * scale if leaf.ndim == 2 else leaf, module)


def layers_of(module):
    """The parameters in float64, by the names the oracle uses."""
    names = ("keys", "gates", "vectors", "strengths")
    layers = {name: getattr(module, name) for name in names}
    return {
        name: (np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64))
        for name, layer in layers.items()
        if layer is not None
    }


def oracle_step(module, query, state):
    config = module.config
    return lrua.step(
        layers_of(module),
        np.asarray(query, np.float64).tolist(),
        state,
        heads=R,
        key_strength=config.key_strength,
        written=config.written,
        order=config.order,
        least_used=config.least_used,
        erased=config.erased,
        gamma=config.decay,
    )


def with_bias(module, layer, value):
    """The same module with the layer's bias set to `value` for every head."""
    return eqx.tree_at(lambda m: getattr(m, layer).bias, module, jnp.full(R, value))


def queries(count=STEPS, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(count, H)), jnp.float32)


def busy_state(seed=0):
    """A state in the middle of an episode, without ties."""
    rng = np.random.default_rng(seed)
    arrays = (
        rng.normal(size=(M, W)),
        rng.dirichlet(np.ones(M), R),
        rng.dirichlet(np.ones(M), R),
        rng.permutation(M) + rng.uniform(size=M) / 2,
    )
    return LRUAState(*(jnp.asarray(a, jnp.float32) for a in arrays))


def as_oracle(state):
    return lrua.State(*(np.asarray(a, np.float64).tolist() for a in state))


def assert_same_state(actual, expected, step=None):
    for name in LRUAState._fields:
        np.testing.assert_allclose(
            getattr(actual, name), getattr(expected, name), atol=2e-5, err_msg=f"{name} at step {step}"
        )


def test_start_of_an_episode_is_as_specified():
    state = build(LRUAConfig()).initial_state()
    one_hot = np.eye(M)[0]
    np.testing.assert_array_equal(state.memory, np.full((M, W), 1e-6, np.float32))
    np.testing.assert_array_equal(state.read_weights, [one_hot] * R)
    np.testing.assert_array_equal(state.usage, one_hot)
    assert_same_state(state, lrua.initial_state(M, W, R))


@pytest.mark.parametrize("start", ["wiped", "busy"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_module_equals_the_oracle_over_several_steps(variant, start):
    module = build(VARIANTS[variant])
    state = module.initial_state() if start == "wiped" else busy_state()
    expected_state = as_oracle(state)
    for step, query in enumerate(queries()):
        reads, state = module(query, state)
        expected_reads, expected_state = oracle_step(module, query, expected_state)
        np.testing.assert_allclose(reads, expected_reads, atol=2e-5, err_msg=f"reads at step {step}")
        assert_same_state(state, expected_state, step)


def test_every_variant_is_a_different_module():
    """Otherwise the comparison above could pass with a field that does nothing."""
    results = {}
    for name, config in VARIANTS.items():
        module, state = build(config), lrua.initial_state(M, W, R)
        for query in queries(4):
            reads, state = oracle_step(module, query, state)
        results[name] = np.array([*reads, *np.ravel(state.memory), *state.usage])
    # With one shared slot, "all" that are marked is that one slot.
    same = {("erased=one", "erased=all")}
    for (a, left), (b, right) in itertools.combinations(results.items(), 2):
        shared = "shared" in a and "shared" in b and a.split(",")[:2] == b.split(",")[:2]
        if shared and (a.split(", ")[-1], b.split(", ")[-1]) in same:
            np.testing.assert_allclose(left, right)
        elif {a, b} & {"default"} and "write_first, shared, erased=" in a + b and "none" not in a + b:
            np.testing.assert_allclose(left, right)  # the default again
        else:
            assert np.abs(left - right).max() > 1e-4, f"{a} does the same as {b}"


@pytest.mark.parametrize("least_used", ["shared", "per_head"])
def test_closed_gate_writes_to_exactly_the_least_used_slots(least_used):
    module = with_bias(build(LRUAConfig(least_used=least_used)), "gates", -1e4)
    state = busy_state()
    _, new = call(module, queries(1)[0], state)
    slots = np.argsort(np.asarray(state.usage))[:R]
    expected = np.eye(M)[[slots[0]] * R if least_used == "shared" else slots]
    np.testing.assert_array_equal(new.write_weights, expected)


def test_open_gate_writes_to_exactly_what_was_read_last():
    module = with_bias(build(LRUAConfig()), "gates", 1e4)
    state = busy_state()
    _, new = call(module, queries(1)[0], state)
    np.testing.assert_array_equal(new.write_weights, state.read_weights)


def test_closed_gate_leaves_only_the_new_vector_in_the_erased_slot_and_the_rest_as_it_was():
    module = with_bias(build(LRUAConfig(written="key")), "gates", -1e4)
    state, query = busy_state(), queries(1)[0]
    _, new = call(module, query, state)
    slot = int(np.argmin(np.asarray(state.usage)))
    keys = np.tanh(np.asarray(query) @ np.asarray(module.keys.weight)).reshape(R, W)
    np.testing.assert_allclose(new.memory[slot], keys.sum(0), atol=1e-5)
    others = np.arange(M) != slot
    np.testing.assert_array_equal(np.asarray(new.memory)[others], np.asarray(state.memory)[others])


def test_very_large_key_strength_reads_exactly_one_slot():
    module = with_bias(build(LRUAConfig()), "strengths", 1e7)
    query, state = queries(1)[0], busy_state()
    reads, new = module(query, state)
    _, expected = oracle_step(module, query, as_oracle(state))
    slots = np.argmax(expected.read_weights, axis=1)
    np.testing.assert_array_equal(new.read_weights, np.eye(M)[slots])
    np.testing.assert_array_equal(np.asarray(reads).reshape(R, W), np.asarray(new.memory)[slots])


def test_very_large_key_strength_reads_one_slot_when_compiled():
    """XLA makes one fused multiply-add of β · cosine − max, so that the largest exponent is not quite 0, and
    e · (1 / e) of e / e: the weight is 1, or the float32 just below. All others are exactly 0."""
    compiled = jax.jit(addressing.content_weights)
    rng = np.random.default_rng(0)
    for _ in range(20):
        keys, memory = (rng.normal(size=(n, W)).astype(np.float32) for n in (R, M))
        weights = np.asarray(compiled(keys, memory, jnp.full(R, 1e7)))
        cosines = keys @ memory.T / np.linalg.norm(memory, axis=1)
        chosen = cosines == cosines.max(axis=1, keepdims=True)
        assert set(weights[chosen].tolist()) <= {1.0, 1 - 2.0**-24}
        assert not weights[~chosen].any()


def test_learned_key_strength_starts_where_the_field_says():
    """β = 1 + softplus(linear(h) + 10): about 11 for a query of zero, told from the ratio of two weights."""
    module = LRUA(H, LRUAConfig(**SIZES, order="read_first"), key=jax.random.key(0))
    module = eqx.tree_at(lambda m: m.keys.bias, module, jnp.ones(R * W))
    memory = jnp.zeros((M, W)).at[0].set(1.0)  # cosine 1 for the first slot, 0 for all others
    _, new = call(module, jnp.zeros(H), busy_state()._replace(memory=memory))
    beta = np.log(np.asarray(new.read_weights)[:, 0] / np.asarray(new.read_weights)[:, 1])
    np.testing.assert_allclose(beta, 1 + np.logaddexp(0, 10.0), rtol=1e-4)


def test_no_gradient_flows_through_usage():
    module = build(LRUAConfig())

    def used(module, query, state):
        return jnp.sum(module(query, state)[1].usage ** 2)

    gradients = eqx.filter_jit(eqx.filter_grad(used))(module, queries(1)[0], busy_state())
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradients))

    def outputs_of_two_steps(usage):
        state = busy_state()._replace(usage=usage)
        for query in queries(2):
            reads, state = module(query, state)
        return jnp.sum(reads**2) + jnp.sum(state.memory**2)

    assert not np.any(jax.jit(jax.grad(outputs_of_two_steps))(busy_state().usage))


def test_each_head_has_a_gate_of_its_own():
    module = build(LRUAConfig())
    module = eqx.tree_at(lambda m: m.gates.bias, module, jnp.array([1e4, -1e4]))
    state = busy_state()
    _, new = call(module, queries(1)[0], state)
    np.testing.assert_array_equal(new.write_weights[0], state.read_weights[0])
    np.testing.assert_array_equal(new.write_weights[1], np.eye(M)[np.argmin(np.asarray(state.usage))])


def test_trace_is_what_the_state_holds():
    module = build(LRUAConfig())
    _, state = call(module, queries(1)[0], busy_state())
    trace = module.trace(state)
    for name in ("read_weights", "write_weights", "usage", "memory"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(state, name))


def test_literal_reading_has_the_papers_choices():
    assert dataclasses.asdict(PAPER_MEMORY) == {
        "slots": 128,
        "width": 40,
        "heads": 4,
        "key_strength": "none",
        "initial_strength": LRUAConfig().initial_strength,
        "written": "key",
        "order": "write_first",
        "least_used": "per_head",
        "erased": "one",
        "decay": 0.99,
    }
    module = PAPER_MEMORY.build(H, (400, 5), key=jax.random.key(0))
    assert module.vectors is None
    assert module.strengths is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("decay", -0.1, "between 0 and 1"),
        ("decay", 1.5, "between 0 and 1"),
        ("decay", float("nan"), "between 0 and 1"),
        ("initial_strength", 1.0, "above 1"),
        ("initial_strength", float("inf"), "above 1"),
    ],
)
def test_impossible_configuration_is_refused_with_the_reason(field, value, words):
    with pytest.raises(MannError, match=words):
        LRUAConfig(**{field: value})
