"""External memories behind one small interface (`Memory`): LRUA, NTM, keys and values, least squares."""

from mann.memory.base import Memory, MemoryConfig, MemoryTrace, NoMemory, NoMemoryConfig, SlotConfig
from mann.memory.keyvalue import KeyValue, KeyValueConfig, KeyValueState
from mann.memory.leastsquares import LeastSquares, LeastSquaresConfig, LeastSquaresState
from mann.memory.lrua import LRUA, PAPER_MEMORY, LRUAConfig, LRUAState
from mann.memory.ntm import NTM, NTMConfig, NTMState
from mann.memory.sparse import Sparse, SparseConfig, SparseState

__all__ = [
    "LRUA",
    "NTM",
    "PAPER_MEMORY",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueState",
    "LRUAConfig",
    "LRUAState",
    "LeastSquares",
    "LeastSquaresConfig",
    "LeastSquaresState",
    "Memory",
    "MemoryConfig",
    "MemoryTrace",
    "NTMConfig",
    "NTMState",
    "NoMemory",
    "NoMemoryConfig",
    "SlotConfig",
    "Sparse",
    "SparseConfig",
    "SparseState",
]
