"""External memories behind one small interface (`Memory`): the paper's LRUA and the NTM's access module."""

from mann.memory.base import Memory, MemoryConfig, MemoryTrace, NoMemory, NoMemoryConfig, SlotConfig
from mann.memory.keyvalue import KeyValue, KeyValueConfig, KeyValueState
from mann.memory.lrua import LRUA, PAPER_MEMORY, LRUAConfig, LRUAState
from mann.memory.ntm import NTM, NTMConfig, NTMState

__all__ = [
    "LRUA",
    "NTM",
    "PAPER_MEMORY",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueState",
    "LRUAConfig",
    "LRUAState",
    "Memory",
    "MemoryConfig",
    "MemoryTrace",
    "NTMConfig",
    "NTMState",
    "NoMemory",
    "NoMemoryConfig",
    "SlotConfig",
]
