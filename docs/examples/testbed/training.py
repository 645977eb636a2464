"""The two networks that are trained, and steps whose compute is paced.

Eight hosts share two processors, so how fast they compute depends on how many there are. Here a
step computes for real, then waits: the forward pass, each gradient and the optimiser end at fixed
times. The schedule of a batch size is 25 times the least processor time that it takes alone: four
hosts share a processor, with twice that work under DistributedDataParallel, and the network's.

``python training.py --toml FOLDER`` writes the workload files.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn

PACE = 25
LATE_S = 2e-3
BUCKET_MIB = 1
SEQUENCE, VOCABULARY, WIDTH = 16, 512, 192


class SmallTransformer(nn.Module):
    """Two wide layers over 16 tokens: few tensors, since each costs time under DDP."""

    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.zeros(SEQUENCE, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        """Logits of each token."""
        return self.head(self.layers(self.token(tokens) + self.position)).transpose(1, 2)


def small_cnn():
    """Four convolutions and four dense layers on 16 × 16 images; no layer keeps statistics."""

    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16),
        nn.MaxPool2d(2),
        *block(16, 32),
        *block(32, 64),
        nn.MaxPool2d(2),
        *block(64, 64),
        nn.Flatten(),
        *(nn.Linear(1024, 512), nn.ReLU()),
        *(nn.Linear(512, 512), nn.ReLU()),
        *(nn.Linear(512, 512), nn.ReLU()),
        nn.Linear(512, 10),
    )


MODELS = {"small_cnn": small_cnn, "small_transformer": SmallTransformer}


def make(name, batch):
    """Network, loss, and one batch of random samples; the same on every rank."""
    torch.manual_seed(0)
    network = MODELS[name]()
    if name == "small_cnn":
        sample = torch.randn(batch, 3, 16, 16), torch.randint(10, (batch,))
    else:
        tokens = torch.randint(VOCABULARY, (batch, SEQUENCE))
        sample = tokens, tokens
    return network, nn.CrossEntropyLoss(), sample


def wait_until(deadline_s):
    """Sleep until a time of the monotonic clock; seconds that it had already passed by, or 0."""
    left_s = deadline_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
    return max(-left_s, 0.0)


class PacedStep:
    """One optimiser step with its compute on a fixed schedule.

    Parameters
    ----------
    name, batch
        What is trained.
    schedule : dict
        ``forward_s``, ``backward_s``, ``optimizer_s``. [s]
    ready : list of float
        Share of the backward pass after which the first, second, … gradient is complete.
    wrap : callable
        Makes the network data-parallel.
    """

    def __init__(self, name, batch, schedule, ready, wrap=lambda network: network):
        network, self._loss, (self._inputs, self._targets) = make(name, batch)
        self._schedule, self._ready = schedule, ready
        self._backward_start_s, self._last_gradient_s = 0.0, 0.0
        self._late, self._complete = 0, 0
        for parameter in network.parameters():
            # Runs before the data-parallel wrapper learns of the gradient.
            parameter.register_post_accumulate_grad_hook(self._gradient)
        self._network = wrap(network)
        self._optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def _gradient(self, _):
        share = self._ready[self._complete]
        self._complete += 1
        deadline_s = self._backward_start_s + share * self._schedule["backward_s"]
        late_s = wait_until(deadline_s)
        # Of the gradients the last one counts: the end of the pass.
        self._late += self._complete == len(self._ready) and late_s > LATE_S
        self._last_gradient_s = time.monotonic()

    def __call__(self):
        """Do one step: compute time without waiting for communication [s], and whether late."""
        self._late, self._complete = 0, 0
        start_s = time.monotonic()
        loss = self._loss(self._network(self._inputs), self._targets)
        self._late += wait_until(start_s + self._schedule["forward_s"]) > LATE_S
        self._backward_start_s = time.monotonic()
        loss.backward()
        computed_s = self._last_gradient_s - start_s
        optimizer_start_s = time.monotonic()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._late += wait_until(optimizer_start_s + self._schedule["optimizer_s"]) > LATE_S
        return computed_s + time.monotonic() - optimizer_start_s, self._late > 0


def processor_time(name, batch, repetitions=15):
    """Least processor time of forward, backward and optimiser: what nothing has disturbed. [s]."""
    network, loss_of, (inputs, targets) = make(name, batch)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    times = []
    for _ in range(repetitions + 3):
        marks = [time.process_time()]
        loss = loss_of(network(inputs), targets)
        marks.append(time.process_time())
        loss.backward()
        marks.append(time.process_time())
        optimizer.step()
        optimizer.zero_grad()
        marks.append(time.process_time())
        times.append(torch.tensor(marks).double().diff())
    return torch.stack(times[3:]).min(dim=0).values.tolist()


def schedule_of(times):
    """Schedule for a processor time: `PACE` times as long, in whole milliseconds. [s]."""
    names = ("forward_s", "backward_s", "optimizer_s")
    return {key: max(round(PACE * t, 3), 1e-3) for key, t in zip(names, times, strict=True)}


def gradient_order(name, batch=16, repetitions=15):
    """Parameters in the order in which their gradients complete, with the share of the pass."""
    network, loss_of, (inputs, targets) = make(name, batch)
    seen = []
    for parameter_name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _, n=parameter_name: seen.append((n, time.process_time()))
        )
    runs = []
    for _ in range(repetitions + 3):
        seen.clear()
        loss = loss_of(network(inputs), targets)
        start_s = time.process_time()
        loss.backward()
        end_s = time.process_time()
        runs.append({n: (t - start_s) / (end_s - start_s) for n, t in seen})
    order = list(runs[-1])
    shares, last = [], 0.0
    for n in order:
        values = torch.tensor([run[n] for run in runs[3:]])
        last = max(last, round(values.median().item(), 3))
        shares.append(last)
    shares[-1] = 1.0
    return dict(zip(order, shares, strict=True))


def flops(name, batch=4):
    """Floating-point operations of the two passes, a sample, as torch counts them. [flop]."""
    from torch.utils.flop_counter import FlopCounterMode

    network, loss_of, (inputs, targets) = make(name, batch)
    with FlopCounterMode(display=False) as forward:
        loss = loss_of(network(inputs), targets)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops() / batch, backward.get_total_flops() / batch


def toml(name):
    """Text of a network's workload file."""
    network, _, _ = make(name, 1)
    sizes = {n: p.numel() for n, p in network.named_parameters()}
    ready = gradient_order(name)
    forward, backward = flops(name)
    sample_bytes = 3 * 16 * 16 * 4 + 8 if name == "small_cnn" else SEQUENCE * 8
    lines = [
        f'name = "{name}"',
        "source = \"made by docs/examples/testbed/training.py: torch's FLOP counter, gradients "
        'timed by hooks"',
        f"parameters = {sum(sizes.values())}",
        "# Elements of each, in the order in which the backward pass completes them, and the share",
        "# of the pass that is done by then:",
        f"gradient_tensors = {[sizes[n] for n in ready]}",
        f"gradient_ready = {list(ready.values())}",
        f"forward_flops_per_sample = {forward!r}",
        f"backward_flops_per_sample = {backward!r}",
        f"bucket_bytes = {BUCKET_MIB * 2**20}",
        f"first_bucket_bytes = {BUCKET_MIB * 2**20}",
        f"sample_bytes = {sample_bytes}",
        "dataset_samples = 50000",
    ]
    return "\n".join(lines) + "\n"


def main():
    """Write the workload files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--toml", required=True, metavar="FOLDER")
    folder = Path(parser.parse_args().toml)
    torch.set_num_threads(1)
    for name in MODELS:
        (folder / f"{name}.toml").write_text(toml(name))
        print(folder / f"{name}.toml")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
