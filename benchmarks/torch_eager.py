"""The same network, loss, optimiser and drawing in PyTorch, run eagerly: what `mann bench` compares with.

Written as one would write it by hand with some care: the input projection of a whole episode is one product,
and so are the two recurrent inputs and the four maps that address the memory. Sizes as in mann: B batch, T time,
H controller units, M slots, W slot width, R heads.
"""

import jax
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mann.controllers import LSTM
from mann.data.render import FINE, MAX_ROTATION, MAX_SHIFT, Drawings, grid_side
from mann.memory import LRUA, LRUAConfig
from mann.memory.addressing import EPSILON
from mann.memory.base import EMPTY
from mann.models import Model
from mann.tasks import Classification
from mann.training.config import Config


class Cell(nn.Module):
    """An LSTM with an LRUA memory, in the default reading of `LRUAConfig`, for a batch of whole episodes."""

    def __init__(
        self, inputs: int, hidden: int, slots: int, width: int, heads: int, outputs: int, decay: float
    ) -> None:
        super().__init__()
        self.hidden, self.slots, self.width, self.heads, self.decay = hidden, slots, width, heads, decay
        reads = heads * width
        self.project = nn.Linear(inputs, 4 * hidden)  # from (x_t, y_{t−1})
        self.recurrent = nn.Linear(hidden + reads, 4 * hidden, bias=False)  # from (h, r)
        self.access = nn.Linear(hidden, 2 * reads + 2 * heads)  # keys, written vectors, gates, strengths
        self.head = nn.Linear(hidden + reads, outputs)

    def forward(self, inputs: Tensor, previous_labels: Tensor) -> Tensor:
        """(B, T, features) and (B, T, labels) to the logits (B, T, outputs)."""
        batch, steps, _ = inputs.shape
        reads = self.heads * self.width
        projected = self.project(torch.cat([inputs, previous_labels], dim=2))  # B T 4H
        fed = torch.zeros(batch, self.hidden + reads)  # (h, r)
        cell = torch.zeros(batch, self.hidden)
        memory = torch.full((batch, self.slots, self.width), EMPTY)
        usage = torch.zeros(batch, self.slots)
        usage[:, 0] = 1
        read_weights = usage[:, None].expand(batch, self.heads, self.slots)
        fed_by_step = []
        for t in range(steps):
            forget, take, give, update = (projected[:, t] + self.recurrent(fed)).chunk(4, dim=1)
            cell = torch.sigmoid(forget + 1) * cell + torch.sigmoid(take) * torch.tanh(update)
            hidden = torch.sigmoid(give) * torch.tanh(cell)

            keys, vectors, gate, strength = self.access(hidden).split(
                [reads, reads, self.heads, self.heads], 1
            )
            keys = torch.tanh(keys).view(batch, self.heads, self.width)
            vectors = torch.tanh(vectors).view(batch, self.heads, self.width)
            gate = torch.sigmoid(gate)[:, :, None]
            strength = 1 + functional.softplus(strength)[:, :, None]

            target = functional.one_hot(usage.argmin(dim=1), self.slots).float()  # B M
            write_weights = gate * read_weights + (1 - gate) * target[:, None]  # B R M
            memory = memory * (1 - target[:, :, None])
            memory = torch.baddbmm(memory, write_weights.transpose(1, 2), vectors)  # B M W

            keys = keys * torch.rsqrt(keys.square().sum(dim=2, keepdim=True) + EPSILON)
            slot_norms = torch.rsqrt(memory.square().sum(dim=2) + EPSILON)  # B M
            similarity = torch.bmm(keys, memory.transpose(1, 2)) * slot_norms[:, None]  # B R M
            read_weights = torch.softmax(strength * similarity, dim=2)
            read = torch.bmm(read_weights, memory).view(batch, reads)
            usage = (self.decay * usage + read_weights.sum(dim=1) + write_weights.sum(dim=1)).detach()

            fed = torch.cat([hidden, read], dim=1)
            fed_by_step.append(fed)
        return self.head(torch.stack(fed_by_step, dim=1))


def from_jax(model: Model) -> Cell:
    """The same network with the same weights: an LSTM with an LRUA memory and no encoder."""
    controller, memory = model.controller, model.memory
    assert isinstance(controller, LSTM)
    assert isinstance(memory, LRUA)
    own = (
        "slots",
        "width",
        "heads",
        "decay",
        "initial_strength",
    )  # any of these; the rest as it is by default
    assert memory.config == LRUAConfig(**{name: getattr(memory.config, name) for name in own})
    assert not jax.tree.leaves(model.encoder)
    assert model.query == "hidden"
    maps = (memory.keys, memory.vectors, memory.gates, memory.strengths)
    access = [linear for linear in maps if linear is not None]
    weights = {
        "project.weight": controller.inputs.weight,
        "project.bias": controller.inputs.bias,
        "recurrent.weight": np.concatenate([controller.recurrent, controller.from_reads]),
        "access.weight": np.concatenate([linear.weight for linear in access], axis=1),
        "access.bias": np.concatenate([linear.bias for linear in access]),
        "head.weight": model.readout.weight,
        "head.bias": model.readout.bias,
    }
    cell = Cell(
        model.input_size + model.label_size,
        controller.hidden_size,
        memory.slots,
        memory.width,
        memory.heads,
        model.readout.weight.shape[1],
        memory.config.decay,
    )
    # mann keeps a weight as (in, out), PyTorch as (out, in); `.T` leaves a bias as it is.
    cell.load_state_dict({name: torch.tensor(np.array(value).T) for name, value in weights.items()})
    return cell


def loss(cell: Cell, inputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, averaged over steps and episodes; `labels` are numbers, (B, T)."""
    onehot = functional.one_hot(labels, cell.head.out_features).float()
    previous = torch.cat([torch.zeros_like(onehot[:, :1]), onehot[:, :-1]], dim=1)
    return functional.cross_entropy(cell(inputs, previous).flatten(0, 1), labels.flatten())


def render(
    grids: Tensor, classes: Tensor, drawings: Tensor, rotation: Tensor, shift: Tensor, quarter: Tensor
) -> Tensor:
    """`mann.data.render.render`: one bilinear look-up per pixel; n drawings to (n, 400)."""
    grid = grids.shape[-1]
    side = (grid - grid_side(0)) // FINE
    centred = torch.arange(side, dtype=torch.float32) - (side - 1) / 2
    down, right = (axis.reshape(1, -1) for axis in torch.meshgrid(centred, centred, indexing="ij"))
    cos_q = torch.tensor([1.0, 0.0, -1.0, 0.0])[quarter, None]
    sin_q = torch.tensor([0.0, 1.0, 0.0, -1.0])[quarter, None]
    y = cos_q * down + sin_q * right - shift[:, :1]
    x = -sin_q * down + cos_q * right - shift[:, 1:]
    cos, sin = torch.cos(rotation)[:, None], torch.sin(rotation)[:, None]
    y, x = cos * y + sin * x, -sin * y + cos * x
    y, x = ((axis * FINE + (grid - 1) / 2).clamp(0.0, grid - 1.001) for axis in (y, x))
    row, column = y.long(), x.long()
    weight_y, weight_x = y - row, x - column
    start = (classes * grids.shape[1] + drawings)[:, None] * grid**2 + row * grid + column
    flat = grids.view(-1)
    corners = [flat.take(start + offset).float() for offset in (0, 1, grid, grid + 1)]
    upper = torch.lerp(corners[0], corners[1], weight_x)
    lower = torch.lerp(corners[2], corners[3], weight_x)
    return torch.lerp(upper, lower, weight_y) / 255


class Training:
    """Whole updates: draw a batch, forward, backward, clip, Adam."""

    def __init__(self, model: Model, drawings: Drawings, config: Config) -> None:
        assert isinstance(config.task, Classification)
        self.task, self.batch, self.clip = config.task, config.batch, config.optimiser.clip
        self.cell, self.side = from_jax(model), drawings.format.side
        self.grids = torch.tensor(np.array(drawings.grids))
        self.counts = torch.tensor(np.array(drawings.counts)).long()
        self.generator = torch.Generator().manual_seed(config.seed)
        self.optimiser = torch.optim.Adam(
            self.cell.parameters(), config.optimiser.learning_rate, betas=(0.9, config.optimiser.beta2)
        )

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator)

    @torch.no_grad()
    def draw(self) -> tuple[Tensor, Tensor]:
        """Pictures (B, T, 400) and labels (B, T) of a batch of episodes, drawn as `Classification.draw` does."""
        batch, steps, n = self.batch, self.task.steps, self.task.classes
        population, per_class = self.grids.shape[:2]
        chosen = self._uniform(batch, population).topk(n, dim=1).indices  # without replacement
        labels = self._uniform(batch, n).argsort(dim=1)
        quarter = torch.randint(4, (batch, n), generator=self.generator)
        which = torch.randint(n, (batch, steps), generator=self.generator)
        seen = functional.one_hot(which, n).cumsum(dim=1).gather(2, which[:, :, None])[:, :, 0]  # 1, 2, …

        available = self.counts[chosen]
        priority = self._uniform(batch, n, per_class)
        priority[torch.arange(per_class) >= available[:, :, None]] = 2.0
        order = priority.argsort(dim=2)
        episode = torch.arange(batch)[:, None]
        drawing = order[episode, which, (seen - 1) % available.gather(1, which)]

        unit = 2 * self._uniform(batch * steps, 3) - 1
        pixels = render(
            self.grids,
            chosen.gather(1, which).flatten(),
            drawing.flatten(),
            unit[:, 0] * MAX_ROTATION,
            unit[:, 1:] * MAX_SHIFT * self.side,
            quarter.gather(1, which).flatten(),
        )
        return pixels.view(batch, steps, -1), labels.gather(1, which)

    def update(self) -> float:
        """One update; gives the loss."""
        self.optimiser.zero_grad()
        value = loss(self.cell, *self.draw())
        value.backward()
        nn.utils.clip_grad_norm_(self.cell.parameters(), self.clip)
        self.optimiser.step()
        return value.item()

    def run(self, updates: int, threads: int) -> None:
        """Some updates on that many cores."""
        torch.set_num_threads(threads)
        for _ in range(updates):
            self.update()
