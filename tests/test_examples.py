"""The examples: parts from outside the package, trained from the command line and from Python."""

import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mann
from mann.cli import main
from mann.parts import use_file

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = [
    *("--task.classes", "3", "--task.length", "9", "--model.controller.hidden", "12"),
    *("--model.memory.slots", "8", "--model.memory.width", "6", "--model.memory.heads", "2"),
    *(
        "--updates",
        "6",
        "--batch",
        "2",
        "--evaluate-every",
        "2",
        "--evaluate-episodes",
        "4",
        "--dispatch",
        "2",
    ),
    *("--optimiser.warmup", "1"),
]
GLYPHS = ["--data.classes", "40", "--data.validation", "6"]
CASES = {
    "my_memory": (GLYPHS, "ring"),
    "my_task": (GLYPHS, "corrected"),
    "my_encoder": (GLYPHS, "strips"),
    "my_data": (["--data.classes", "40", "--data.validation", "6"], "flags"),
}


@pytest.fixture(autouse=True)
def _surroundings(shared_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.chdir(tmp_path)


def picture(data: mann.DataConfig, number: int, drawing: int) -> np.ndarray:
    images = data.load()
    return (images.images[number, drawing] * (255 // images.ink)).astype(np.uint8)


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_ones_own_trains_resumes_is_tested_and_learns(name, capsys):
    """As the example's first lines say, with a network of a few units."""
    options, kind = CASES[name]
    file = str(EXAMPLES / f"{name}.py")
    assert main(["train", f"{file}:config", *SMALL, *options, "--run", "run"]) == 0
    assert f'"kind": "{kind}"' in Path("run/config.json").read_text()
    last = capsys.readouterr().out.splitlines()[-1]  # the next command, as it works
    assert "--use " in last
    assert f"{name}.py" in last
    # Resumed from the middle, it ends with the same bytes.
    names = ("metrics.jsonl", "checkpoints/update-00000006.safetensors")
    before = [(Path("run") / name).read_bytes() for name in names]
    Path("run/checkpoints/update-00000006.safetensors").unlink()
    assert main(["train", "--resume", "run", "--use", file]) == 0
    assert [(Path("run") / name).read_bytes() for name in names] == before
    assert main(["eval", "run", "--use", file, "--episodes", "6"]) == 0
    assert "6 episodes of 3 classes" in capsys.readouterr().out

    learner = mann.OneShotLearner.from_pretrained("run", seed=0)
    data = mann.load_trained("run").config.data
    learner.learn_one(picture(data, 0, 0), "one")
    learner.learn_one(picture(data, 1, 0), "two")
    chances = learner.predict_proba_one(picture(data, 0, 1))
    assert set(chances) == {"one", "two", None}
    assert sum(chances.values()) == pytest.approx(1)


def test_a_kind_that_is_not_known_says_what_to_do(tmp_path):
    """In a process of its own, where nobody has run the example's file."""
    import subprocess

    file = str(EXAMPLES / "my_memory.py")
    assert main(["train", f"{file}:config", *SMALL, *GLYPHS, "--run", "run"]) == 0
    done = subprocess.run([sys.executable, "-m", "mann", "eval", "run"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "is of kind 'ring', which is not known here" in done.stderr
    assert "--use FILE.py" in done.stderr


def test_a_data_set_of_ones_own_is_shown_as_the_network_sees_it(capsys):
    use = ["--use", str(EXAMPLES / "my_data.py")]
    assert main(["data", "flags", *use]) == 0
    assert "24×24 pixels, colour" in (shown := capsys.readouterr().out)
    assert "the network sees 12×12" in shown
    assert main(["data", "flags", *use, "--side", "16"]) == 0
    assert "the network sees 16×16" in capsys.readouterr().out


def test_the_network_is_told_only_after_a_wrong_answer():
    """The task's rollout against a loop over single steps in numpy."""
    module = use_file(EXAMPLES / "my_task.py")
    task = module.Corrected(classes=3, length=7)
    drawings = mann.prepare(mann.Glyphs(classes=12).load())
    model = mann.build_model(mann.ModelConfig(), task, drawings.format, key=jax.random.key(0))
    episodes = task.draw_batch(jax.random.split(jax.random.key(1), 2), drawings)
    outputs, _ = task.unroll(model, episodes)
    told_anything = 0
    for number in range(2):
        state, told = model.initial_state(), jnp.zeros(3)
        for step in range(7):
            output, state = model.step(episodes.inputs[number, step], told, state)
            np.testing.assert_allclose(outputs[number, step], output, atol=1e-5)
            target = episodes.targets[number, step]
            told = jnp.zeros(3) if int(output.argmax()) == int(target.argmax()) else target
            told_anything += float(told.sum())
    assert 0 < told_anything < 14


def test_a_loop_of_ones_own_learns():
    spec = importlib.util.spec_from_file_location("own_loop", EXAMPLES / "own_loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
        _, losses = module.train(updates=60, batch=8)
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
