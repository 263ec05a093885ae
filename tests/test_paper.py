import pytest

from mann.paper import paper_accuracy, paper_human, paper_rows

HUMAN = {1: 34.5, 2: 57.3, 3: 70.1, 4: 71.8, 5: 81.4, 10: 92.4}


def test_rows_stand_beside_the_same_task_and_network():
    rows = paper_rows(5, "onehot", "lstm", "lrua")
    assert [row.model for row in rows] == ["Human", "MANN"]
    assert rows[0].accuracy == HUMAN
    assert rows[1].accuracy[10] == 98.1
    assert paper_rows(15, "strings", "lstm", "ntm")[0].accuracy[2] == 35.4
    assert paper_rows(7, "onehot", "lstm", "lrua") == []


def test_single_rows_are_found_by_name():
    assert paper_human(5) == HUMAN
    assert paper_accuracy("table1", "MANN", 5) == [36.4, 82.8, 91.0, 92.6, 94.9, 98.1]
    with pytest.raises(KeyError):
        paper_accuracy("table1", "MANN", 15)
