"""External memories behind one small interface (`Memory`): LRUA, dense and sparse; the NTM's and the DNC's; keys
and values, in a ring or where it learned to write them; least squares; and what people would take instead:
prototypes, a matching network, causal attention."""

from mann.memory.attention import Attention, AttentionConfig, AttentionState
from mann.memory.base import Memory, MemoryConfig, MemoryTrace, NoMemory, NoMemoryConfig, SlotConfig
from mann.memory.dnc import DNC, DNCConfig, DNCState
from mann.memory.keyvalue import KeyValue, KeyValueConfig, KeyValueState
from mann.memory.leastsquares import LeastSquares, LeastSquaresConfig, LeastSquaresState
from mann.memory.lrua import LRUA, PAPER_MEMORY, LRUAConfig, LRUAState
from mann.memory.matching import Matching, MatchingConfig
from mann.memory.ntm import NTM, NTMConfig, NTMState
from mann.memory.prototypes import Prototypes, PrototypesConfig, PrototypesState
from mann.memory.selective import Selective, SelectiveConfig, SelectiveState
from mann.memory.sparse import Sparse, SparseConfig, SparseState

__all__ = [
    "DNC",
    "LRUA",
    "NTM",
    "PAPER_MEMORY",
    "Attention",
    "AttentionConfig",
    "AttentionState",
    "DNCConfig",
    "DNCState",
    "KeyValue",
    "KeyValueConfig",
    "KeyValueState",
    "LRUAConfig",
    "LRUAState",
    "LeastSquares",
    "LeastSquaresConfig",
    "LeastSquaresState",
    "Matching",
    "MatchingConfig",
    "Memory",
    "MemoryConfig",
    "MemoryTrace",
    "NTMConfig",
    "NTMState",
    "NoMemory",
    "NoMemoryConfig",
    "Prototypes",
    "PrototypesConfig",
    "PrototypesState",
    "Selective",
    "SelectiveConfig",
    "SelectiveState",
    "SlotConfig",
    "Sparse",
    "SparseConfig",
    "SparseState",
]
