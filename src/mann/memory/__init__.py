"""External memories behind one small interface (`Memory`): the paper's LRUA and the NTM's access module."""

from mann.memory.base import Memory, MemoryTrace
from mann.memory.lrua import LITERAL, LRUA, LRUAConfig, LRUAState
from mann.memory.ntm import NTM, NTMConfig, NTMState

__all__ = [
    "LITERAL",
    "LRUA",
    "NTM",
    "LRUAConfig",
    "LRUAState",
    "Memory",
    "MemoryTrace",
    "NTMConfig",
    "NTMState",
]
