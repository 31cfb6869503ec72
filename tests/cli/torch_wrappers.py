#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What others build on torch.distributed, on backend muster: torch_wrappers.py WRAPPER

The weights after some steps of SGD are those of one process that has the batches of all ranks.
"""
import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import muster.torch

STEPS, BATCH, TOKENS, WIDTH, RATE = 4, 3, 40, 8, 0.5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embedding, self.middle = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 1)

    def forward(self, tokens):
        return self.output(torch.relu(self.middle(self.embedding(tokens))))


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, TOKENS, (BATCH, 2), generator=generator)


def loss_of(model, tokens):
    return (model(tokens) - 1).pow(2).mean()


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for tokens in batches:
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        optimizer.step()


def mine():
    return [batch(step, dist.get_rank()) for step in range(STEPS)]


def expected(size):
    model = Model()
    train(model, [torch.cat([batch(step, rank) for rank in range(size)]) for step in range(STEPS)])
    return model


class Samples(torch.utils.data.Dataset):
    """As a loader with a sampler for each rank takes them: rank r gets r, r + size, ..."""

    def __init__(self, size):
        rows = [[batch(step, rank)[number] for rank in range(size)] for step in range(STEPS) for number in range(BATCH)]
        self._samples = [sample for row in rows for sample in row]

    def __len__(self):
        return len(self._samples)

    def __getitem__(self, number):
        return {"tokens": self._samples[number]}


def ddp():
    dist.init_process_group("muster")
    model = Model()
    train(DistributedDataParallel(model), mine())
    return model


def compiled():
    """Eager steps, in which DDP learns its buckets, then compiled ones."""
    dist.init_process_group("muster")
    model = muster.torch.send_rows(Model())
    wrapped = DistributedDataParallel(model)
    train(wrapped, mine()[:2])
    train(torch.compile(wrapped, backend="aot_eager"), mine()[2:])
    return model


def fsdp():
    """fully_shard; where that needs a GPU (PyTorch 2.6), the older class."""
    from torch.distributed import fsdp as way
    if torch.__version__.startswith("2.1."):
        raise ImportError("FSDP of PyTorch 2.1 needs a GPU")
    dist.init_process_group("muster")
    if not hasattr(torch.cpu.Stream, "record_event") or not hasattr(way, "fully_shard"):
        model = way.FullyShardedDataParallel(Model(), use_orig_params=True, device_id=torch.device("cpu"))
        train(model, mine())
        with way.FullyShardedDataParallel.summon_full_params(model):
            return copy.deepcopy(model.module)
    model = Model()
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    way.fully_shard(model.middle, mesh=mesh)
    way.fully_shard(model, mesh=mesh)
    train(model, mine())
    whole = Model()
    whole.load_state_dict({name: value.full_tensor() for name, value in model.state_dict().items()})
    return whole


def accelerate():
    from accelerate import Accelerator
    dist.init_process_group("muster")
    accelerator = Accelerator(cpu=True)
    model = muster.torch.send_rows(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    wrapped, optimizer = accelerator.prepare(model, optimizer)
    if not isinstance(wrapped, DistributedDataParallel):
        sys.exit("Accelerate made no DDP")
    for tokens in mine():
        optimizer.zero_grad()
        accelerator.backward(loss_of(wrapped, tokens))
        optimizer.step()
    return model


def trainer():
    from transformers import Trainer, TrainingArguments

    class Mine(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **_):
            self.wrapped = model
            return loss_of(model, inputs["tokens"])

        def _get_train_sampler(self, *_):  # in the order of the samples
            return torch.utils.data.SequentialSampler(self.train_dataset)

    dist.init_process_group("muster")
    model = muster.torch.send_rows(Model())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, per_device_train_batch_size=BATCH, num_train_epochs=1, use_cpu=True,
                                      learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0,
                                      remove_unused_columns=False, report_to="none", save_strategy="no",
                                      disable_tqdm=True)
        one = Mine(model, arguments, train_dataset=Samples(dist.get_world_size()),
                   optimizers=(torch.optim.SGD(model.parameters(), lr=RATE), None))
        one.train()
    if not isinstance(one.wrapped, DistributedDataParallel):
        sys.exit("Trainer made no DDP")
    return model


def lightning():
    import lightning as pl
    from lightning.pytorch.strategies import DDPStrategy

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, samples, _):
            return loss_of(self.model, samples["tokens"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    one = pl.Trainer(accelerator="cpu", devices=size, strategy=DDPStrategy(process_group_backend="muster"),
                     max_epochs=1, use_distributed_sampler=False, logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False)
    module = muster.torch.send_rows(Module())
    samples = torch.utils.data.Subset(Samples(size), range(rank, STEPS * BATCH * size, size))
    one.fit(module, torch.utils.data.DataLoader(samples, batch_size=BATCH))
    return module.model


def main(wrapper):
    try:
        model = globals()[wrapper]()
    except ImportError as error:
        print(f"skip: {error}")
        return 0
    if dist.get_backend() != "muster":
        sys.exit(f"the backend is {dist.get_backend()}")
    right = expected(dist.get_world_size()).state_dict()
    start = copy.deepcopy(Model()).state_dict()
    for name, value in model.state_dict().items():
        if not torch.allclose(value, right[name], 0, 1e-6):
            sys.exit(f"{name} is off by {(value - right[name]).abs().max().item():g}")
        if torch.equal(value, start[name]):
            sys.exit(f"{name} did not change")
    print(f"rank {dist.get_rank()}: as one process")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
