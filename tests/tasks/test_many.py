"""Episodes of few things or many, and novelty as an output, against numpy and scikit-learn."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import log_loss

from mann.controllers import NoControllerConfig
from mann.data import Glyphs
from mann.data.render import prepare
from mann.encoders import MLPConfig
from mann.errors import MannError
from mann.labels import STRINGS
from mann.memory import KeyValueConfig
from mann.models import ModelConfig, build_model
from mann.outputs import LettersOrNew
from mann.tasks import ManyThings
from mann.tasks.many import CONTRAST_STRENGTH, HEAVIEST, contrast_loss, even_odds
from mann.tasks.pool import PoolConfig

TASK = ManyThings(classes=12, fewest=2, length=30, labels="strings")


@pytest.fixture(scope="module")
def drawings(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        yield prepare(Glyphs(classes=20).load())


def test_numbers_of_things_are_even_on_a_logarithmic_scale(drawings):
    keys = jax.random.split(jax.random.key(0), 400)
    classes = np.asarray(jax.jit(TASK.draw_batch)(keys, drawings).classes)
    many = classes.max(axis=1) + 1
    assert many.min() >= 1
    assert many.max() == 12
    few = np.mean(many <= 5)  # log(6/2) of log(13/2), but for classes that were never drawn
    assert few == pytest.approx(np.log(3) / np.log(6.5), abs=0.08)


def test_crowded_episodes_have_all_classes():
    crowded = dataclasses.replace(TASK, crowded=0.6)
    sizes = np.asarray(jax.vmap(crowded.random_size)(jax.random.split(jax.random.key(0), 2000)))[:, 0]
    others = np.log(13 / 12) / np.log(6.5)  # that have all of them by chance
    assert np.mean(sizes == 12) == pytest.approx(0.6 + 0.4 * others, abs=0.04)
    assert np.mean(sizes[sizes < 12] <= 5) == pytest.approx(np.log(3) / np.log(6), abs=0.06)
    with pytest.raises(MannError, match="at most 1"):
        dataclasses.replace(TASK, crowded=1.5)


def test_a_source_with_fewer_classes_gives_smaller_episodes(drawings):
    small = type(drawings)(drawings.grids[:5], drawings.counts[:5])
    episodes = TASK.draw_batch(jax.random.split(jax.random.key(0), 50), small)
    assert int(episodes.classes.max()) == 4
    assert episodes.inputs.shape == (50, 30, 400)


def test_new_and_known_weigh_the_same_at_every_step():
    """By counting: over many sequences of classes, the weights of new and of known steps add up to the same."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 6, (20_000, 8))
    classes[:, 7] = 5  # all sequences show that there are six
    first = np.array([[c not in row[:i] for i, c in enumerate(row)] for row in classes.tolist()])
    weights = np.asarray(even_odds(jnp.asarray(first), jnp.full((20_000, 1), 6)))
    for step in range(1, 7):
        new, known = (weights[:, step][first[:, step] == value].sum() for value in (True, False))
        assert new == pytest.approx(known, rel=0.06)
    assert np.all(weights[:, 0] == 0)  # nothing is known yet
    assert weights.max() <= HEAVIEST / 2


def test_the_loss_counts_letters_of_known_classes_and_novelty_everywhere(drawings):
    episodes = TASK.draw_batch(jax.random.split(jax.random.key(3), 2), drawings)
    rng = np.random.default_rng(0)
    outputs = jnp.asarray(rng.normal(size=(2, 30, 26)), jnp.float32)
    got = TASK.loss(outputs, episodes)
    total = jnp.max(episodes.classes, axis=1, keepdims=True) + 1
    weights = np.asarray(even_odds(episodes.instances == 1, total))
    for number in range(2):
        total = 0.0
        for step in range(30):
            logits, new = np.asarray(outputs[number, step, :25], np.float64), float(outputs[number, step, 25])
            is_new = int(episodes.instances[number, step]) == 1
            if not is_new:
                for letter, target in zip(
                    logits.reshape(5, 5),
                    np.asarray(episodes.targets[number, step]).reshape(5, 5),
                    strict=True,
                ):
                    odds = np.exp(letter) / np.exp(letter).sum()
                    total += log_loss([int(target.argmax())], [odds], labels=range(5))
            chance = 1 / (1 + np.exp(-new))
            total += weights[number, step] * log_loss([int(is_new)], [[1 - chance, chance]], labels=[0, 1])
        assert float(got[number]) == pytest.approx(total / 30, rel=1e-4)


def test_the_output_states_names_and_novelty_apart():
    output = LettersOrNew(STRINGS)
    values = jnp.concatenate([10 * STRINGS.encode(jnp.array([77])), jnp.array([[2.0]])], axis=1)
    assert output.size == 26
    assert float(output.new(values)[0]) == pytest.approx(1 / (1 + np.exp(-2)))
    assert bool(output.correct(values, STRINGS.encode(jnp.array([77])))[0])
    assert int(STRINGS.decode(output.predict(values))[0]) == 77


def test_a_number_of_classes_is_that_many_in_every_episode(drawings):
    task = TASK.resized(classes=4)
    assert (task.classes, task.fewest, task.steps) == (4, 4, 40)
    episodes = task.draw_batch(jax.random.split(jax.random.key(0), 20), drawings)
    assert set(np.asarray(episodes.classes).max(axis=1)) == {3}


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"fewest": 0}, "at least 1"), ({"fewest": 13}, "at most 12"), ({"labels": "onehot"}, "string labels")],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(MannError, match=message):
        ManyThings(**{"classes": 12, "labels": "strings"} | fields)


QUIZ = ManyThings(
    classes=12,
    fewest=2,
    length=40,
    quizzed=1.0,
    pool=PoolConfig(episodes=4, classes=16, drawings=4),
)


@pytest.fixture(scope="module")
def quizzes(drawings):
    return jax.jit(QUIZ.draw_training)(jax.random.split(jax.random.key(0), 4), drawings)


def test_a_quiz_teaches_most_classes_once_and_then_asks(quizzes):
    assert QUIZ.taught == 12
    told = np.asarray(quizzes.told)
    assert np.all(told == (np.arange(40) < 12))
    for places, classes, instances, targets in zip(
        *(
            np.asarray(a)
            for a in (quizzes.inputs.places, quizzes.classes, quizzes.instances, quizzes.targets)
        ),
        strict=True,
    ):
        assert len(set(places)) == 40  # no drawing comes twice
        assert len(set(classes[:12])) == 12
        lessons = dict(zip(classes[:12], targets[:12], strict=True))
        pictured = dict(zip(classes, places // 4, strict=True))  # one class of the pool for each
        assert len(set(pictured.values())) == len(pictured)
        for step in range(12, 40):
            assert pictured[classes[step]] == places[step] // 4
            assert instances[step] == (2 if classes[step] in lessons else 1)
            if classes[step] in lessons:
                assert np.array_equal(targets[step], lessons[classes[step]])
        assert np.all(instances[:12] == 1)
        assert 1 in instances[12:]
        assert 2 in instances[12:]


def test_no_answer_of_a_quiz_is_told(quizzes):
    class Recorder:
        def unroll_batch(self, inputs, previous_labels, state=None):
            self.labels = np.asarray(previous_labels)
            return None, None, None

        def step(self, x, previous_label, state): ...

        def initial_state(self): ...

    recorder = Recorder()
    QUIZ.unroll(recorder, quizzes)
    assert np.all(recorder.labels[:, 0] == 0)
    assert np.array_equal(recorder.labels[:, 1:13], np.asarray(quizzes.targets)[:, :12])
    assert np.all(recorder.labels[:, 13:] == 0)


def test_new_and_known_weigh_the_same_in_a_quiz(drawings):
    """With all logits 0, each step costs log 2 times its weight, and letters cost 5 log 5."""
    keys = jax.random.split(jax.random.key(1), 400)
    episodes = jax.jit(QUIZ.draw_training)(keys, drawings)
    losses = np.asarray(QUIZ._losses(jnp.zeros((400, 40, 26)), episodes))
    is_new = np.asarray(episodes.instances) == 1
    assert np.all(losses[:, :12] == 0)
    asked, new = losses[:, 12:], is_new[:, 12:]
    known_weight = (asked[~new] - 5 * np.log(5)) / np.log(2)
    assert known_weight.sum() == pytest.approx(asked[new].sum() / np.log(2), rel=0.05)


def test_a_share_of_the_episodes_are_quizzes(drawings):
    task = dataclasses.replace(QUIZ, quizzed=0.3)
    episodes = jax.jit(task.draw_training)(jax.random.split(jax.random.key(2), 800), drawings)
    quiz = ~np.asarray(episodes.told).all(axis=1)
    assert quiz.mean() == pytest.approx(0.3, abs=0.06)
    assert np.all(np.asarray(episodes.classes)[~quiz] < 12)


def test_a_quiz_is_for_training_alone():
    assert QUIZ.resized(length=5).quizzed == QUIZ.resized(classes=4).quizzed == QUIZ.smallest().quizzed == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quizzed": 1.5}, "at most 1"),
        ({"pool": PoolConfig()}, "needs a pool"),
        ({"quizzed": 0.0, "contrast": 1.0, "pool": PoolConfig()}, "contrast needs a pool"),
        ({"contrast": -1.0}, "at least 0"),
        ({"length": 12}, "nothing to ask"),
    ],
)
def test_a_quiz_that_cannot_be_is_refused(fields, message):
    with pytest.raises(MannError, match=message):
        dataclasses.replace(QUIZ, **fields)


def test_the_contrast_is_that_of_a_loop_over_all_choices_of_a_drawing():
    keys = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    unit = keys.astype(float) / np.linalg.norm(keys, axis=1, keepdims=True)
    costs = []
    for picture, shown in itertools.product(range(12), range(3)):  # 4 classes of 3 drawings
        if picture % 3 != shown:
            cosines = np.array([unit[picture] @ unit[3 * other + shown] for other in range(4)])
            odds = np.exp(CONTRAST_STRENGTH * cosines)
            costs.append(log_loss([picture // 3], [odds / odds.sum()], labels=range(4)))
    assert float(contrast_loss(jnp.asarray(keys), 3)) == pytest.approx(np.mean(costs), rel=1e-4)


def test_the_contrast_is_added_to_the_loss_of_every_episode_of_a_pool(drawings):
    task = dataclasses.replace(QUIZ, quizzed=0.0, contrast=2.0)
    memory = KeyValueConfig(slots=8, width=6)
    config = ModelConfig(encoder=MLPConfig(8, 1, 7), controller=NoControllerConfig(), memory=memory)
    model = build_model(config, task, key=jax.random.key(0))
    draw = jax.jit(lambda keys: task.draw_training(keys, drawings))
    episodes = draw(jax.random.split(jax.random.key(0), 8))
    with_contrast, without = (
        jax.jit(lambda episodes, one=one: one.loss(one.unroll(model, episodes)[0], episodes))(episodes)
        for one in (task, dataclasses.replace(task, contrast=0.0))
    )
    pools = [contrast_loss(model.embed(pictures), 4) for pictures in episodes.inputs.pictures]
    expected = np.asarray(without) + 2 * np.repeat(np.asarray(pools), 4)
    np.testing.assert_allclose(with_contrast, expected, rtol=1e-4)
