"""Numbers for those who watch the server, in the text format of Prometheus."""

import bisect
import threading
from collections.abc import Mapping

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

Labels = Mapping[str, str]


class Counter:
    """Goes up only, by labels."""

    kind = "counter"

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._lock = threading.Lock()
        self._values: dict[tuple[tuple[str, str], ...], int] = {}

    def add(self, amount: int = 1, **labels: str) -> None:
        key = tuple(labels.items())
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def lines(self) -> list[str]:
        with self._lock:
            values = dict(self._values) or {(): 0}
        return [_line(self.name, dict(key), value) for key, value in values.items()]


class Histogram:
    """How often values of what size came, by labels."""

    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: tuple[float, ...]) -> None:
        self.name, self.about, self._bounds = name, about, bounds
        self._lock = threading.Lock()
        self._counts: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._sums: dict[tuple[tuple[str, str], ...], float] = {}

    def add(self, value: int | float, **labels: str) -> None:
        key = tuple(labels.items())
        with self._lock:
            counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
            counts[bisect.bisect_left(self._bounds, value)] += 1
            self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> list[str]:
        lines = []
        with self._lock:
            for key, counts in self._counts.items():
                total = 0
                for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
                    total += count
                    lines.append(_line(f"{self.name}_bucket", {**dict(key), "le": str(bound)}, total))
                lines.append(_line(f"{self.name}_sum", dict(key), self._sums[key]))
                lines.append(_line(f"{self.name}_count", dict(key), total))
        return lines


class Metrics:
    """All that is counted."""

    def __init__(self) -> None:
        self.requests = Counter("mann_requests_total", "Requests by route, method and status.")
        self.seconds = Histogram("mann_request_seconds", "Time until the answer began, by route.", SECONDS)
        self.predictions = Counter("mann_predictions_total", "Pictures that learners were asked about.")
        self.examples = Counter("mann_examples_total", "Examples that learners were shown.")
        self.batches = Histogram(
            "mann_batch_pictures", "Pictures that ran through the network at once.", SIZES
        )

    def render(self, gauges: Mapping[str, tuple[str, Mapping[str, int]]]) -> str:
        """The text, with further values of this moment.

        Args:
            gauges: by name: what it is, and the values by the label `kind`, or by "" without a label.
        """
        parts = []
        for metric in (self.requests, self.seconds, self.predictions, self.examples, self.batches):
            parts += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
            parts += metric.lines()
        for name, (about, values) in gauges.items():
            parts += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
            parts += [_line(name, {"kind": kind} if kind else {}, value) for kind, value in values.items()]
        return "\n".join(parts) + "\n"


def _line(name: str, labels: Labels, value: int | float) -> str:
    inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value:.17g}" if inner else f"{name} {value:.17g}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
