"""Networks by a few words, for tests: `network(memory="ntm", hidden=8, slots=6)`."""

import dataclasses
from typing import Any

from mann.controllers import ControllerConfig
from mann.encoders import ConvConfig, NoEncoder
from mann.memory import LRUAConfig, MemoryConfig, NTMConfig
from mann.models import ModelConfig

CONTROLLERS, MEMORIES = ControllerConfig.members, MemoryConfig.members
LRUA, NTM = LRUAConfig(), NTMConfig()


def network(
    controller: str = "lstm",
    memory: str = "lrua",
    encoder: str = "none",
    *,
    hidden: int = 200,
    maps: int = 64,
    lrua: LRUAConfig = LRUA,
    ntm: NTMConfig = NTM,
    reads_to_controller: bool = True,
    query: Any = "hidden",
    **sizes: int,
) -> ModelConfig:
    """A configuration; `sizes` are slots, width and heads of the memory, `lrua` and `ntm` its further choices."""
    start = {"lrua": lrua, "ntm": ntm}.get(memory) or MEMORIES[memory]()
    return ModelConfig(
        encoder=ConvConfig(maps=maps) if encoder == "conv" else NoEncoder(),
        controller=CONTROLLERS[controller](hidden=hidden),
        memory=start if memory == "none" else dataclasses.replace(start, **sizes),
        reads_to_controller=reads_to_controller,
        query=query,
    )
