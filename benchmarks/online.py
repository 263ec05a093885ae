"""Drive `OneShotLearner` through test episodes one call at a time, beside `mann eval` of the same model.

    python benchmarks/online.py MODEL [EPISODES]

Drawings of Omniglot's test classes are turned and shifted as in training, but by PIL at their full size, and go in
as pictures of a user would. Two ways: with every label of the model announced in advance, as in the paper's task,
where the answer is the network's own and should equal `mann eval`; and with labels as they come, where the learner
may also answer that this is something new (the right answer for a 1st instance), and how sure it is should be how
often it is right. Last, what a call costs: time of one core, whoever else uses it.
"""

import sys
import time

import numpy as np

SHOWN = (1, 2, 3, 4, 5, 10)
BINS = (0.0, 0.4, 0.6, 0.8, 0.95, 1.0)  # of how sure the learner is


def drive(learner, pictures, labels, seconds=None):
    """At every step: the instance, the answer, the right label, and how sure the learner is of its answer."""
    seen: dict[int, int] = {}
    for picture, which in pictures:
        seen[which] = seen.get(which, 0) + 1
        began = time.process_time()
        answer = learner.predict_one(picture)
        predicted = time.process_time() - began
        confidence = learner.predict_proba_one(picture)[answer]
        began = time.process_time()
        learner.learn_one(picture, labels[which])
        if seconds is not None:
            seconds.append((predicted, time.process_time() - began))
        yield seen[which], answer, labels[which], confidence


def main(model: str, episodes: int) -> None:
    from mann.runtime import prepare_jax

    prepare_jax()
    import mann
    from mann.data.pictures import draw_pictures
    from mann.evaluation import evaluate
    from mann.statistics import wilson_by_episode

    trained = mann.load_trained(model)
    reference = evaluate(trained, episodes=episodes)
    task, dataset, (first, last) = reference.task, reference.dataset, reference.class_range
    bitmaps = trained.config.data.load().images[first - 1 : last]
    parent = mann.OneShotLearner(trained)
    rng = np.random.default_rng(1)
    seconds: list[tuple[float, float]] = []
    print(f"{model} on {dataset} classes {first}–{last}, {episodes} episodes of length {task.steps}")
    for announced in (True, False):
        right, count = np.zeros((2, episodes, 11))
        sure: list[tuple[float, bool]] = []
        for number in range(episodes):
            learner = parent.sibling(labels=range(parent.capacity) if announced else ())
            labels = rng.permutation(parent.capacity)[: task.classes].tolist()
            pictures = draw_pictures(bitmaps, task.classes, task.steps, rng)
            for instance, answer, label, confidence in drive(learner, pictures, labels, seconds):
                truth = None if instance == 1 and not announced else label
                if not announced:
                    sure.append((confidence, answer == truth))
                if instance <= 10:
                    right[number, instance] += answer == truth
                    count[number, instance] += 1
        print("labels announced in advance" if announced else "labels as they come")
        if not announced:
            _print_calibration(np.array(sure))
        for i in SHOWN:
            ours = _percent(wilson_by_episode(right[:, i], count[:, i]))
            print(f"  {i:2d}  API {ours}   eval {_percent(reference.result.instances[i - 1])}", flush=True)
    calls = np.array(seconds[len(seconds) // 2 :]).T * 1e3
    for name, values in zip(("predict_one", "learn_one"), calls, strict=True):
        print(f"{name}: {np.median(values):.2f} ms, p99 {np.percentile(values, 99):.2f} ms of one core")


def _print_calibration(sure):
    places = np.clip(np.digitize(sure[:, 0], BINS) - 1, 0, len(BINS) - 2)
    for place in range(len(BINS) - 1):
        if (here := places == place).any():
            said, right = 100 * sure[here].mean(axis=0)
            print(f"  says {said:.0f} % on average, is right {right:.0f} % of {here.sum()} times")


def _percent(interval):
    value, low, high, _ = (100 * number for number in interval)
    return f"{value:5.1f} ({low:.1f} – {high:.1f})"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
