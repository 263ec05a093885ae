"""Tasks: where episodes come from, how they are drawn, their loss, what is counted and reported."""

from mann.tasks.alphabets import Alphabets
from mann.tasks.asking import Asking, AskingResult
from mann.tasks.base import Result, ResultTable, Sources, Stage, Task, Unseen
from mann.tasks.classification import AccuracyByInstance, Classification
from mann.tasks.many import ManyThings
from mann.tasks.regression import FunctionTask, LikelihoodByStep, Regression, UnknownFunctions
from mann.tasks.roaming import KnownOrNew, Roaming

__all__ = [
    "AccuracyByInstance",
    "Alphabets",
    "Asking",
    "AskingResult",
    "Classification",
    "FunctionTask",
    "KnownOrNew",
    "LikelihoodByStep",
    "ManyThings",
    "Regression",
    "Result",
    "ResultTable",
    "Roaming",
    "Sources",
    "Stage",
    "Task",
    "UnknownFunctions",
    "Unseen",
]
