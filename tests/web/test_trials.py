"""The file of trials: concurrent writers, CSV, summary."""

import contextlib
import csv
import io
import sqlite3
import subprocess
import sys
import threading

import pytest

from mann.cli import main
from mann.errors import MannError
from mann.web.trials import FORMAT, SCHEMA, Answer, TrialInfo, TrialStore

CHILD = """
import sys
from pathlib import Path
from mann.web.trials import Answer, TrialInfo, TrialStore
store = TrialStore(Path(sys.argv[1]))
for trial in range(5):
    info = TrialInfo(f"{sys.argv[2]}-{trial}", sys.argv[2], True, "glyphs", "m", 5, 6)
    store.begin(info)
    for step in range(1, 7):
        store.add(info.id, Answer(step, step, 1, 1, 2, 0.5), last=step == 6)
"""


def fill(
    store: TrialStore, name: str, *, right: int, scored: bool = True, length: int = 10, stop: int = 10
) -> None:
    """A trial whose first `right` answers are right; the network is always right."""
    info = TrialInfo(name, f"p-{name}", scored, "omniglot", "omniglot-5", 5, length)
    store.begin(info)
    for step in range(1, stop + 1):
        store.add(name, Answer(step, step, 3, 3 if step <= right else 4, 3, 1.25), last=step == length)


def test_concurrent_writers_lose_nothing(tmp_path):
    """Threads of this process and two other processes."""
    path = tmp_path / "trials.sqlite"
    store = TrialStore(path)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), f"child{i}"], env={"PYTHONPATH": ":".join(sys.path)}
        )
        for i in range(2)
    ]
    threads = [threading.Thread(target=fill, args=(store, f"t{i}"), kwargs={"right": 5}) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait(60) for child in children] == [0, 0]
    assert len(store.scored()) == 6 * 10 + 2 * 5 * 6


def test_an_answer_is_kept_once(tmp_path):
    store = TrialStore(tmp_path / "trials.sqlite")
    fill(store, "a", right=3, stop=4)
    with pytest.raises(MannError, match="cannot be used"):
        store.add("a", Answer(4, 4, 3, 3, 3, 1.0), last=False)
    with pytest.raises(MannError, match="cannot be used"):
        store.add("no such trial", Answer(1, 1, 3, 3, 3, 1.0), last=False)
    assert store.scored() == []  # not finished


def test_export_is_csv_with_everything(tmp_path, capsys):
    path = tmp_path / "trials.sqlite"
    store = TrialStore(path)
    fill(store, "practice", right=2, scored=False)
    fill(store, "real", right=4)
    assert main(["trials", "export", "--file", str(path)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 20
    assert {row["scored"] for row in rows} == {"0", "1"}
    assert sum(int(row["correct"]) for row in rows if row["trial"] == "real") == 4
    assert main(["trials", "export", "--file", str(path), "--out", str(tmp_path / "out.csv")]) == 0
    assert "20 answers" in capsys.readouterr().out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 21


def test_summary_over_participants(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "trials.sqlite"
    store = TrialStore(path)
    fill(store, "practice", right=10, scored=False)
    fill(store, "left", right=10, stop=3)
    for name, right in (("a", 10), ("b", 1), ("c", 1), ("d", 4)):
        fill(store, name, right=right)
    assert main(["trials", "summary", "--file", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "4 participant(s), 4 scored trial(s)" in shown
    second = next(line.split() for line in shown.splitlines() if line.split()[:1] == ["2"])
    assert second[1] == "50.0"  # a and d were right on the 2nd instance
    assert "100.0" in second
    assert second[-1] == "57.3"  # the paper's people


def test_mistakes_are_one_sentence(tmp_path, capsys):
    assert main(["trials", "summary", "--file", str(tmp_path / "absent")]) == 2
    assert "no trials yet" in capsys.readouterr().err
    TrialStore(tmp_path / "empty.sqlite")
    assert main(["trials", "summary", "--file", str(tmp_path / "empty.sqlite")]) == 2
    assert "no finished, scored trial" in capsys.readouterr().err
    (tmp_path / "text").write_text("not a database" * 100)
    assert main(["trials", "export", "--file", str(tmp_path / "text")]) == 2
    assert "cannot be used" in capsys.readouterr().err
    with sqlite3.connect(tmp_path / "newer") as connection:
        connection.execute(f"PRAGMA application_id = {0x6D616E6E}")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert main(["trials", "export", "--file", str(tmp_path / "newer")]) == 2
    assert "newer version" in capsys.readouterr().err


FOREIGN = {
    "empty": "",
    "another program's": "CREATE TABLE bookmarks (url TEXT); PRAGMA user_version = 1",
    "with a mark of its own": SCHEMA + "PRAGMA user_version = 1; PRAGMA application_id = 7",
    "of no format": SCHEMA,
    "with a table missing": SCHEMA + "DROP TABLE answers; PRAGMA user_version = 1",
    "with a column missing": SCHEMA + "ALTER TABLE answers DROP COLUMN seconds; PRAGMA user_version = 1",
    "newer": f"{SCHEMA} PRAGMA application_id = {0x6D616E6E}; PRAGMA user_version = {FORMAT + 1}",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_databases_are_refused_and_left_alone(kind, tmp_path, capsys):
    """An empty or altered one is not taken for a new one either."""
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(FOREIGN[kind])
    path.touch()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(MannError, match="newer version" if kind == "newer" else "no file of trials"):
            TrialStore(path, read_only=read_only)
    assert main(["trials", "export", "--file", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_the_first_version_go_on(tmp_path):
    """They have no application_id."""
    path = tmp_path / "trials.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
        connection.execute("PRAGMA user_version = 1")
    fill(TrialStore(path), "a", right=3)
    assert len(TrialStore(path, read_only=True).scored()) == 10


def test_reading_changes_nothing_and_a_deleted_file_does_not_come_back_empty(tmp_path):
    path = tmp_path / "trials.sqlite"
    store = TrialStore(path)
    fill(store, "a", right=3)
    before = path.read_bytes()
    reader = TrialStore(path, read_only=True)
    with pytest.raises(MannError, match="readonly"):
        fill(reader, "b", right=3)
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(MannError, match="cannot be used"):
        fill(store, "b", right=3)
    assert not path.exists()
