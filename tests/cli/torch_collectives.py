#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each collective of torch.distributed over backend muster, against what it must give. Prints what is wrong.

torch_collectives.py [host | gpu | reversed]: in host memory, on the GPU with the rank's number, or in reversed order.
"""
import datetime
import gc
import sys
import time

import torch
import torch.distributed as dist

import muster.torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NUMBERS = FLOATS + [torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16, torch.complex64]
ALL = NUMBERS + [torch.bool, torch.complex128]
failed = []


def expect(name, value, wanted):
    if value.shape != wanted.shape or not torch.equal(value, wanted.to(value.dtype)):
        failed.append(name)
        print(f"rank {dist.get_rank()}: {name}: {value} in place of {wanted}", flush=True)


def of(rank, dtype, shape=(3, 2)):
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 5 + rank).reshape(shape).to(dtype)


def reductions(me, size):
    for dtype in NUMBERS:
        total = sum(of(rank, torch.complex128) for rank in range(size))
        tensor = of(me, dtype)
        dist.all_reduce(tensor)
        expect(f"all_reduce of {dtype}", tensor, total.to(dtype))
        tensor = of(me, dtype)
        dist.reduce(tensor, size - 1)
        if me == size - 1:
            expect(f"reduce of {dtype}", tensor, total.to(dtype))
        tensor, whole = of(0, dtype), of(me, dtype, (3 * size, 2))
        dist.reduce_scatter_tensor(tensor, whole)
        parts = sum(of(rank, torch.complex128, (3 * size, 2)) for rank in range(size)).chunk(size)
        expect(f"reduce_scatter_tensor of {dtype}", tensor, parts[me].to(dtype))
        tensor = of(0, dtype)
        dist.reduce_scatter(tensor, list(whole.chunk(size)))
        expect(f"reduce_scatter of {dtype}", tensor, parts[me].to(dtype))
    for op, wanted in ((dist.ReduceOp.MAX, size - 1), (dist.ReduceOp.MIN, 0), (dist.ReduceOp.AVG, (size - 1) / 2)):
        tensor = torch.tensor([float(me)])
        dist.all_reduce(tensor, op)
        expect(f"all_reduce {op}", tensor, torch.tensor([wanted]))
    strided = of(me, torch.float32, (4, 4))[:, ::2]
    dist.all_reduce(strided)
    expect("all_reduce of a view", strided, sum(of(rank, torch.float32, (4, 4))[:, ::2] for rank in range(size)))
    for shape in ((), (0,), (1 << 18,)):
        tensor = of(me, torch.float32, shape)
        dist.all_reduce(tensor)
        expect(f"all_reduce of shape {shape}", tensor, sum(of(rank, torch.float32, shape) for rank in range(size)))


def moves(me, size):
    for dtype in ALL:
        tensor = of(me, dtype)
        dist.broadcast(tensor, size - 1)
        expect(f"broadcast of {dtype}", tensor, of(size - 1, dtype))
        parts = [of(0, dtype) for _ in range(size)]
        dist.all_gather(parts, of(me, dtype))
        whole = torch.cat(parts).clone()
        expect(f"all_gather of {dtype}", whole, torch.cat([of(rank, dtype) for rank in range(size)]))
        into = torch.zeros_like(whole)
        dist.all_gather_into_tensor(into, of(me, dtype))
        expect(f"all_gather_into_tensor of {dtype}", into, whole)
        parts = [of(0, dtype) for _ in range(size)] if me == 0 else None
        dist.gather(of(me, dtype), parts, 0)
        if me == 0:
            expect(f"gather of {dtype}", torch.cat(parts), whole)
        if hasattr(dist, "gather_single"):  # since PyTorch 2.15
            dist.gather_single(of(me, dtype), torch.empty_like(whole) if me == 0 else None, 0)
            into = torch.empty_like(whole)
            dist.gather_single(of(me, dtype), into if me == size - 1 else None, size - 1)
            if me == size - 1:
                expect(f"gather_single of {dtype}", into, whole)
        tensor = of(0, dtype)
        dist.scatter(tensor, [of(rank + 2, dtype) for rank in range(size)] if me == 0 else None, 0)
        expect(f"scatter of {dtype}", tensor, of(me + 2, dtype))
        tensor = torch.zeros_like(whole)
        dist.all_to_all_single(tensor, torch.cat([of(me + 2 * rank, dtype) for rank in range(size)]))
        expect(f"all_to_all_single of {dtype}", tensor, torch.cat([of(rank + 2 * me, dtype) for rank in range(size)]))


def uneven(me, size):
    """Rank r has r + 1 rows for each."""
    parts = [torch.zeros(rank + 1, 2) for rank in range(size)]
    dist.all_gather(parts, torch.full((me + 1, 2), float(me)))
    for rank in range(size):
        expect("all_gather of unequal sizes", parts[rank], torch.full((rank + 1, 2), float(rank)))
    output = torch.zeros(sum(range(1, size + 1)), 3)
    dist.all_to_all_single(output, torch.full(((me + 1) * size, 3), float(me)),
                           [rank + 1 for rank in range(size)], [me + 1] * size)
    expect("all_to_all_single of unequal sizes", output,
           torch.cat([torch.full((rank + 1, 3), float(rank)) for rank in range(size)]))
    outputs = [torch.zeros(rank + 1) for rank in range(size)]
    dist.all_to_all(outputs, [torch.full((me + 1,), float(rank)) for rank in range(size)])
    expect("all_to_all", torch.cat(outputs), torch.full((sum(range(1, size + 1)),), float(me)))


def messages(me, size):
    """Each rank sends around a ring before it receives, more than any buffer holds; then by tags, out of order."""
    count = 1 << 20
    after, before = (me + 1) % size, (me - 1) % size
    operations = [dist.P2POp(dist.isend, torch.full((count,), float(me)), after),
                  dist.P2POp(dist.irecv, torch.zeros(count), before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    expect("a ring of messages", operations[1].tensor, torch.full((count,), float(before)))
    if me == 0:
        works = [dist.isend(torch.full((5,), float(tag)), 1, tag=tag) for tag in range(3)]
    if me == 1:
        tensors = {tag: torch.zeros(5) for tag in (2, 0, 1)}
        works = [dist.irecv(tensor, 0, tag=tag) for tag, tensor in tensors.items()]
    if me < 2:
        for work in works:
            work.wait()
    if me == 1:
        for tag, tensor in tensors.items():
            expect("messages by tag", tensor, torch.full((5,), float(tag)))


def groups(me, size):
    """All pairs of neighbours, each a group; and objects, which travel as bytes."""
    for first in range(size - 1):
        group = dist.new_group([first, first + 1], timeout=datetime.timedelta(seconds=30))
        if me in (first, first + 1):
            tensor = torch.tensor([float(me)])
            dist.all_reduce(tensor, group=group)
            expect("all_reduce of a group", tensor, torch.tensor([2.0 * first + 1]))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": me, "text": "x" * me})
    if objects != [{"rank": rank, "text": "x" * rank} for rank in range(size)]:
        failed.append("all_gather_object")
    items = [{"from": me}]
    dist.broadcast_object_list(items, 1)
    if items != [{"from": 1}]:
        failed.append("broadcast_object_list")
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(50)]
    for work in works:
        work.wait()
    dist.barrier()


def memory(*_):
    """A model is gone, and with it its buckets. The lane's thread may hold the last one for a moment."""
    def alive():
        gc.collect()
        return [tensor for tensor in gc.get_objects() if type(tensor) is torch.Tensor and tensor.numel() == elements]

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 11))
    elements = sum(parameter.numel() for parameter in model.parameters())
    model(torch.ones(1, 300)).sum().backward()
    del model
    for _ in range(600):
        if not alive():
            return
        time.sleep(0.1)
    failed.append(f"{len(alive())} buckets outlive their model")


def choose_gpu(me, size):
    """After init_process_group, as programs do. Other GPUs than the plan's are usual."""
    device = torch.device("cuda", size - 1 - me if sys.argv[1] == "reversed" else me)
    torch.cuda.set_device(device)
    torch.set_default_device(device)


def beside_gpu(me, size):
    """Host memory in turns with a GPU, barrier, and a second GPU."""
    device = torch.cuda.current_device()
    for place in ("cpu", "cuda", "cpu", "cuda"):
        tensor = torch.full((1 << 16,), float(me), device=place)
        dist.all_reduce(tensor)
        expect(f"all_reduce on {place}", tensor, torch.full((1 << 16,), size * (size - 1) / 2, device=place))
    product = torch.full((4096, 4096), 1 / 4096)
    for _ in range(30):
        product = product @ product
    dist.barrier()
    if not torch.cuda.current_stream().query():
        failed.append("barrier returned before the GPU's work was done")
    try:
        dist.all_reduce(torch.zeros(1, device=f"cuda:{(device + 1) % torch.cuda.device_count()}"))
        failed.append("a tensor on a second GPU was not refused")
    except muster.torch.Error as error:
        if f"but the first one was on cuda:{device}" not in str(error):
            failed.append(str(error))
    if torch.cuda.current_device() != device:
        failed.append(f"GPU {torch.cuda.current_device()} is current in place of {device}")


def main():
    dist.init_process_group("muster")
    me, size = dist.get_rank(), dist.get_world_size()
    if sys.argv[1:] not in ([], ["host"]):
        choose_gpu(me, size)
        beside_gpu(me, size)
    for part in (reductions, moves, uneven, memory, messages, groups)[:6 if size > 1 else 4]:
        part(me, size)
    print(f"rank {me}: {'done' if not failed else failed}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
