"""The learner of functions: any scale, one sample at a time or many, files, and what it refuses."""

import threading

import jax
import numpy as np
import pytest

from mann import (
    Config,
    FunctionLearner,
    LeastSquaresConfig,
    MannError,
    ModelConfig,
    NoControllerConfig,
    NoData,
    UnknownFunctions,
    build_model,
)
from mann.files import load_arrays, save_arrays
from mann.online import OneShotLearner
from mann.online.functions import KEPT, _turns
from mann.online.network import Network
from mann.trained import Trained


def tiny(dimensions=1):
    """A network that was never trained: least squares as it starts is a sound regressor."""
    config = Config(
        task=UnknownFunctions(dimensions=dimensions),
        model=ModelConfig(
            controller=NoControllerConfig(),
            memory=LeastSquaresConfig(frequencies=12, heads=2, hidden=4),
            reads_to_controller=False,
        ),
        data=NoData(),
    )
    model = build_model(config.model, config.task, key=jax.random.key(0))
    return Trained("tiny", model, config, {"classes": None})


TRAINED = tiny()
X = np.linspace(0, 60, 41)
Y = 200 + 30 * np.sin(X / 6)


@pytest.fixture
def learner():
    return FunctionLearner(TRAINED)


def state_of(learner):
    known = learner._learned
    return [known.scaling, known.pending, known.x, known.y, known.samples, *jax.tree.leaves(known.state)]


def test_it_finds_a_function_of_any_scale(learner):
    learner.learn_many(X[::2], Y[::2])
    mean, scale = learner.predict_many(X[1::2])
    assert np.abs(mean - Y[1::2]).max() < 6 < np.ptp(Y) / 5
    assert scale.max() < 15
    one = learner.predict_one(X[1])
    assert one == pytest.approx((mean[0], scale[0]), rel=1e-4)


def test_other_units_give_the_same_answers_in_those_units(learner):
    other = FunctionLearner(TRAINED)
    for x, y in zip(X[:9], Y[:9], strict=True):
        learner.learn_one(x, y)
        other.learn_one(1e-3 * x - 7, -5e6 * y + 3)
    mean, scale = learner.predict_many([3.0, 8.5])
    theirs = other.predict_many(1e-3 * np.array([3.0, 8.5]) - 7)
    # The waves do not treat mirrored values alike beyond rounding: y ↦ −y only changes signs.
    np.testing.assert_allclose((theirs.mean - 3) / -5e6, mean, rtol=1e-3)
    np.testing.assert_allclose(theirs.scale / 5e6, scale, rtol=1e-2)


def test_one_at_a_time_is_many_at_once():
    """Up to where the scale is taken: by the last turn, both have shown the same samples in the same scale."""
    single, many = FunctionLearner(TRAINED), FunctionLearner(TRAINED)
    for x, y in zip(X[:16], Y[:16], strict=True):
        single.learn_one([x], y)
    many.learn_many(X[:16], Y[:16])
    a, b = single.predict_many(X), many.predict_many(X)
    np.testing.assert_allclose(a.mean, b.mean, atol=3)
    assert single.samples == many.samples == 16


def test_known_ranges_hold_from_the_first_sample_on():
    learner = FunctionLearner(TRAINED, x_range=(0, 60), y_range=(150, 250))
    before = learner.predict_one(5)
    assert before.mean == pytest.approx(200, abs=1)
    assert 10 < before.scale < 60
    learner.learn_one(5, 190.0)
    scaling = learner._learned.scaling
    learner.learn_many(X, Y)
    assert learner._learned.scaling is scaling
    two = FunctionLearner(tiny(2), x_range=((0, -1), (1, 1)))
    assert two._x_range[0].tolist() == [0, -1]


def test_before_any_sample_nothing_is_known(learner):
    assert learner.predict_one(3) == (0.0, np.inf)
    assert learner.predict_many([1, 2]).scale.tolist() == [np.inf, np.inf]
    learner.learn_one(3, 5.0)
    mean, scale = learner.predict_one(3)
    assert abs(mean - 5) < 2.5
    assert 0 < scale < 50
    learner.reset()
    assert learner.samples == 0
    assert learner.predict_one(3).scale == np.inf


def test_questions_leave_no_trace(learner):
    learner.learn_many(X[:5], Y[:5])
    before = state_of(learner)
    learner.predict_one(3)
    learner.predict_many(X)
    assert all(a is b for a, b in zip(before, state_of(learner), strict=True))


@pytest.mark.parametrize("native", ["0", "1"])
def test_learning_what_was_just_asked_takes_no_second_step(native, monkeypatch):
    """And comes to the same as learning without asking, or after asking of something else."""
    monkeypatch.setenv("MANN_NATIVE", native)
    learner, unasked, elsewhere = (FunctionLearner(TRAINED) for _ in range(3))
    steps, step = [], Network.step
    monkeypatch.setattr(Network, "step", lambda self, *parts: steps.append(self) or step(self, *parts))
    for taught in (learner, unasked, elsewhere):
        taught.learn_many(X[:9], Y[:9])
    learner.predict_one(X[9])
    elsewhere.predict_one(X[10])
    for taught in (learner, unasked, elsewhere):
        taught.learn_one(X[9], Y[9])
    assert steps.count(learner._network) == 1
    for other in (unasked, elsewhere):
        jax.tree.map(np.testing.assert_array_equal, state_of(learner), state_of(other))
    learner.learn_one(X[9], Y[9])  # the same x again: not from the old question
    unasked.learn_one(X[9], Y[9])
    assert steps.count(learner._network) == 2
    jax.tree.map(np.testing.assert_array_equal, state_of(learner), state_of(unasked))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.nan, 1.0, "x must be finite"),
        (1.0, np.inf, "y must be finite"),
        ("3", 1.0, "x must be a number, not '3'"),
        (1.0, "high", "y must be a number, not 'high'"),
        ([1.0, 2.0], 1.0, "x must be a number, not an array of the shape"),
        (None, 1.0, "x must be a number, not None"),
        (1.0, [1.0, 2.0], "y must be a number"),
        ([[1.0], [2.0, 3.0]], 1.0, "x must be a number"),
        (1e200, 1.0, "x is larger than 1e\\+100"),
        (1.0, -1e300, "y is larger than"),
        (1j, 1.0, "x must be a number"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(learner, x, y, message):
    learner.learn_many(X[:5], Y[:5])
    before = state_of(learner)
    with pytest.raises(MannError, match=message) as caught:
        learner.learn_one(x, y)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(". ") == 0
    with pytest.raises(MannError):
        learner.learn_many([1.0, x], [1.0, y])
    assert all(a is b for a, b in zip(before, state_of(learner), strict=True))
    if "x " in message:
        with pytest.raises(MannError, match=message):
            learner.predict_one(x)


def test_what_is_no_list_is_refused_where_many_are_asked_for(learner):
    learner.learn_many(X[:5], Y[:5])
    before = state_of(learner)
    for call, name in (
        (lambda: learner.predict_many(5), "x"),
        (lambda: learner.learn_many(5, Y[:5]), "x"),
        (lambda: learner.learn_many(X[:5], None), "y"),
        (lambda: learner.learn_many(np.asarray(3.0), [1.0]), "x"),
    ):
        with pytest.raises(MannError, match=f"Many {name} are a list, not"):
            call()
    assert all(a is b for a, b in zip(before, state_of(learner), strict=True))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x_range": (1, 1)}, "range of x is empty"),
        ({"x_range": (0, np.inf)}, "must be finite"),
        ({"y_range": (0,)}, "two numbers"),
        ({"y_range": ("a", "b")}, "finite numbers"),
    ],
)
def test_ranges_that_are_none_are_refused(fields, message):
    with pytest.raises(MannError, match=message):
        FunctionLearner(TRAINED, **fields)


def test_equal_samples_and_extreme_ones_stay_finite(learner):
    for x, y in [(2, 2), (2, 2), (2, 2.5), (1e99, -1e99), (-1e99, 1e-99), (0, 0)]:
        learner.learn_one(x, y)
        assert np.isfinite(learner.predict_one(0)).all()
        assert np.isfinite(learner.predict_one(-1e100)).all()


def test_a_saved_learner_goes_on_where_it_was(learner, tmp_path):
    ranged = FunctionLearner(TRAINED, x_range=(0, 60))
    for one in (learner, ranged):
        one.learn_many(X[:7], Y[:7])
        one.save(tmp_path / "function")
        again = FunctionLearner.load(tmp_path / "function")
        for each in (one, again):
            each.learn_one(X[8], Y[8])
        assert again.predict_one(20.0) == one.predict_one(20.0)
        assert repr(again) == "FunctionLearner('tiny', 8 samples)"
        np.testing.assert_equal(again._x_range, one._x_range)
    fresh = FunctionLearner(TRAINED)
    fresh.save(tmp_path / "fresh")
    assert FunctionLearner.load(tmp_path / "fresh").predict_one(1).scale == np.inf


def test_damaged_files_are_refused(learner, tmp_path):
    path = tmp_path / "function"
    learner.learn_many(X[:3], Y[:3])
    learner.save(path)
    arrays, description = load_arrays(path)
    for change in (
        {"scaling": np.array([[0.0, 0.0], [0.0, 1.0]])},
        {"samples.y": np.array([1.0])},
        {"pending": np.full(1, np.nan, np.float32)},
    ):
        save_arrays(path, arrays | change, description)
        with pytest.raises(MannError, match="makes no sense"):
            FunctionLearner.load(path)
    save_arrays(path, arrays, description | {"function_learner": {"version": 99}})
    with pytest.raises(MannError, match="later version"):
        FunctionLearner.load(path)
    description.pop("function_learner")
    save_arrays(path, arrays, description)
    with pytest.raises(MannError, match="no learner of functions"):
        FunctionLearner.load(path)


def test_the_state_of_an_earlier_version_is_refused_in_a_sentence(learner, tmp_path):
    """Before the memory kept `reach`, the files had the same version."""
    path = tmp_path / "function"
    learner.learn_many(X[:3], Y[:3])
    learner.save(path)
    arrays, description = load_arrays(path)
    earlier = {name: array for name, array in arrays.items() if not name.endswith(".reach")}
    assert len(earlier) == len(arrays) - 1
    save_arrays(path, earlier, description)
    with pytest.raises(MannError) as error:
        FunctionLearner.load(path)
    assert str(error.value) == (
        f"{path} was written by an earlier version of mann, whose memory had another form: teach it anew."
    )


def test_models_of_pictures_are_refused_and_those_of_functions_elsewhere():
    with pytest.raises(MannError, match="not trained on functions"):
        FunctionLearner.from_pretrained("omniglot-5")
    with pytest.raises(MannError, match="not trained to name things"):
        OneShotLearner(TRAINED)


def test_a_stream_without_end_keeps_so_many_samples(learner):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 60, KEPT + 300)
    learner.learn_many(x, 200 + 30 * np.sin(x / 6))
    assert len(learner._learned.y) == KEPT
    assert learner.samples == KEPT + 300
    assert learner.predict_one(9.0).mean == pytest.approx(200 + 30 * np.sin(1.5), abs=5)


def test_the_scale_is_taken_anew_less_and_less_often():
    anew = [n for n in range(1, 70) if _turns(n) != _turns(n - 1)]
    assert anew == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


def test_threads_do_not_lose_samples(learner):
    def teach(part):
        for x, y in zip(X[part::2], Y[part::2], strict=True):
            learner.learn_one(x, y)
            learner.predict_one(x)

    threads = [threading.Thread(target=teach, args=(part,)) for part in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learner.samples == len(X)
    assert sorted(learner._learned.x[:, 0]) == sorted(X)
