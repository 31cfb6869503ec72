# SPDX-License-Identifier: BSD-3-Clause
"""The process-group backend `muster`: the collectives of torch.distributed as calls of libmuster.

Each group is a world of its own. Messages from one rank to another have a world of two for each
direction and tag, so that a send waits for its own receive alone.
"""
import collections
import os
from ctypes import c_size_t

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from muster import library
from muster.library import Error
from muster.torch import ending, tensors
from muster.torch.lane import Lanes

_OPS = {"SUM": library.SUM, "AVG": library.MEAN, "MIN": library.MIN, "MAX": library.MAX}


def _op(call, op):
    """enum muster_op of a ReduceOp, which differs from its own enum in some releases."""
    for name, value in _OPS.items():
        if op == getattr(dist.ReduceOp, name):
            return value
    name = next((name for name in ("PRODUCT", "BAND", "BOR", "BXOR") if op == getattr(dist.ReduceOp, name)), "a factor")
    raise Error(f"muster.torch: {call} got {name}: use SUM, AVG, MIN or MAX")


def _only(call, what, items):
    if len(items) != 1:
        raise Error(f"muster.torch: {call} got {len(items)} {what}: pass one, each process has one device")
    return items[0]


def _sizes(values):
    return (c_size_t * len(values))(*values)


def _starts(counts):
    starts = [0]
    for count in counts[:-1]:
        starts.append(starts[-1] + count)
    return starts


class MusterGroup(dist.ProcessGroup):
    """What init_process_group("muster") and new_group give."""

    def __init__(self, store, rank, size, timeout, name, label=None):
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._name = name
        self._label = label
        if label is None:
            self._label = "" if name in ("", "0", "default_pg") else f"group {name}: "
        self._edges = {}
        self._beside = 0  # groups of `beside`
        self._lanes = Lanes(f"muster/{name}", self._label, store, rank, size, timeout)

    @property
    def lanes(self):
        """The worlds of this group, for Sampler and Checkpoint."""
        return self._lanes

    def beside(self, purpose):
        """[collective] Another group of the same ranks."""
        self._beside += 1
        return MusterGroup(self._store, self._rank, self._size, self._timeout,
                           f"{self._name}/{purpose} {self._beside}", self._label)

    def _start(self, function, results, inputs=()):
        return self._lanes.of(results[0].device).start(function, results, inputs)

    # What newer releases ask a group or its backend for.
    supports_coalescing = supports_splitting = False

    def _get_backend(self, _):
        return self

    def getBackendName(self):
        return "muster"

    def name(self):
        return "muster"

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    @property
    def group_name(self):
        return self._name

    def _set_sequence_number_for_group(self):
        """libmuster numbers its collectives by itself."""

    # ---- Reductions ----

    def _reduce(self, name, tensor, op, reduce):
        """reduce(call, pointer, count, type, op, stream) on the values of tensor, in place."""
        code = _op(name, op)
        tensors.check(name, tensor)
        tensors.check_reducible(name, tensor.dtype, code)

        def run(call, stream):
            source = tensors.reducible(tensor)
            pointer, count, dtype = tensors.moved(source)
            reduce(call, pointer, count, dtype, code, stream)
            tensors.put_back(source, tensor)

        return self._start(run, [tensor])

    def allreduce(self, values, opts=None):
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        return self._reduce("all_reduce", _only("all_reduce", "tensors", values), op,
                            lambda call, *arguments: call("allreduce", *arguments))

    def allreduce_coalesced(self, values, opts=None):
        works = [self.allreduce([value], opts) for value in values]
        return works[-1]

    def reduce(self, values, opts):
        return self._reduce("reduce", _only("reduce", "tensors", values), opts.reduceOp,
                            lambda call, pointer, count, dtype, op, stream: call(
                                "reduce", pointer, pointer, count, dtype, op, opts.rootRank, stream))

    def _reduce_scatter_base(self, output, source, opts=None):
        code = _op("reduce_scatter", opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
        if code not in (library.SUM, library.MEAN):
            raise Error("muster.torch: reduce_scatter got another op than SUM or AVG: use all_reduce")
        tensors.check("reduce_scatter", output, source)
        if source.numel() != output.numel() * self._size or source.dtype != output.dtype:
            raise Error(f"muster.torch: reduce_scatter got {source.numel()} elements of {source.dtype} for an output "
                        f"of {output.numel()} of {output.dtype}: the input has as many for each of {self._size} ranks")
        tensors.check_reducible("reduce_scatter", output.dtype, code)

        def run(call, stream):
            send = tensors.reducible(source)
            part = tensors.reducible(output)
            pointer, count, dtype = tensors.moved(part)
            call("reduce_scatter", send.data_ptr(), pointer, count, dtype, stream)
            if code == library.MEAN:
                part.div_(self._size, rounding_mode=None if part.is_floating_point() else "trunc")
            tensors.put_back(part, output)

        return self._start(run, [output], [source])

    def reduce_scatter(self, outputs, inputs, opts=None):
        output = _only("reduce_scatter", "outputs", outputs)
        parts = _only("reduce_scatter", "lists", inputs)
        tensors.check("reduce_scatter", output, *parts)
        if any(part.numel() != output.numel() for part in parts):
            raise Error("muster.torch: reduce_scatter got parts of unequal size: pad them")
        return self._reduce_scatter_base(output, torch.cat([part.reshape(-1) for part in parts]), opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        works = [self._reduce_scatter_base(output, source, opts) for output, source in zip(outputs, inputs)]
        return works[-1]

    # ---- One rank's data for all, all ranks' data for each ----

    def broadcast(self, values, opts=None):
        tensor = _only("broadcast", "tensors", values)
        root = opts.rootRank if opts is not None else 0
        tensors.check("broadcast", tensor)

        def run(call, stream):
            source = tensor.contiguous()
            pointer, count, dtype = tensors.moved(source)
            call("broadcast", pointer, count, dtype, root, stream)
            tensors.put_back(source, tensor)

        return self._start(run, [tensor])

    def _allgather_base(self, output, source, opts=None):
        tensors.check("all_gather", output, source)
        if output.numel() != source.numel() * self._size or output.dtype != source.dtype:
            raise Error(f"muster.torch: all_gather got an output of {output.numel()} elements of {output.dtype} for "
                        f"{source.numel()} of {source.dtype}: it takes as many from each of {self._size} ranks")

        def run(call, stream):
            send = source.contiguous()
            whole = output.contiguous()
            pointer, count, dtype = tensors.moved(send)
            call("allgather", pointer, whole.data_ptr(), count, dtype, stream)
            tensors.put_back(whole, output)

        return self._start(run, [output], [source])

    def allgather(self, outputs, inputs, opts=None):
        parts = _only("all_gather", "lists", outputs)
        source = _only("all_gather", "tensors", inputs)
        tensors.check("all_gather", source, *parts)
        if any(part.numel() != source.numel() or part.dtype != source.dtype for part in parts):
            return self._exchange("all_gather", [source] * self._size, parts)

        def run(call, stream):
            send = source.contiguous()
            whole = torch.empty((self._size,) + tuple(send.shape), dtype=send.dtype, device=send.device)
            pointer, count, dtype = tensors.moved(send)
            call("allgather", pointer, whole.data_ptr(), count, dtype, stream)
            for part, value in zip(parts, whole):
                part.copy_(value.view(part.shape))

        return self._start(run, list(parts), [source])

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        works = [self._allgather_base(output, source) for output, source in zip(outputs, inputs)]
        return works[-1]

    def allgather_coalesced(self, outputs, inputs, opts=None):
        works = [self.allgather([output], [source]) for output, source in zip(outputs, inputs)]
        return works[-1]

    def gather(self, outputs, inputs, opts):
        source, root = _only("gather", "tensors", inputs), opts.rootRank
        here = self._rank == root
        parts = _only("gather", "lists", outputs) if here else []
        tensors.check("gather", source, *parts)

        def run(call, stream):
            send = source.contiguous()
            whole = torch.empty((self._size if here else 0,) + tuple(send.shape), dtype=send.dtype, device=send.device)
            pointer, count, dtype = tensors.moved(send)
            call("gather", pointer, whole.data_ptr(), count, dtype, root, stream)
            for part, value in zip(parts, whole):
                part.copy_(value.view(part.shape))

        return self._start(run, list(parts) or [source], [source])

    def gather_single(self, output, source, opts):
        here = self._rank == opts.rootRank
        if here and output.numel() != source.numel() * self._size:
            raise Error(f"muster.torch: gather got an output of {output.numel()} elements for {source.numel()} of each "
                        f"of {self._size} ranks")
        return self.gather([list(output.view(self._size, *source.shape))] if here else [], [source], opts)

    def scatter(self, outputs, inputs, opts):
        output, root = _only("scatter", "outputs", outputs), opts.rootRank
        parts = _only("scatter", "lists", inputs) if self._rank == root else []
        tensors.check("scatter", output, *parts)

        def run(call, stream):
            send = torch.cat([part.reshape(-1) for part in parts]) if parts else None
            part = output.contiguous()
            pointer, count, dtype = tensors.moved(part)
            call("scatter", send.data_ptr() if parts else None, pointer, count, dtype, root, stream)
            tensors.put_back(part, output)

        return self._start(run, [output], parts)

    # ---- All to all ----

    def _exchange(self, name, sends, receives):
        """The r-th of sends to rank r, the r-th of receives from it."""
        tensors.check(name, *sends, *receives)
        kind = sends[0].dtype
        if any(tensor.dtype != kind for tensor in [*sends, *receives]):
            raise Error(f"muster.torch: {name} got tensors of several dtypes: pass one dtype")

        def run(call, stream):
            send = torch.cat([tensor.reshape(-1) for tensor in sends])
            whole = send.new_empty(sum(tensor.numel() for tensor in receives))
            self._all_to_all(call, send, [tensor.numel() for tensor in sends], whole,
                             [tensor.numel() for tensor in receives], stream)
            for tensor, value in zip(receives, whole.split([tensor.numel() for tensor in receives])):
                tensor.copy_(value.view(tensor.shape))

        return self._start(run, list(receives), sends)

    @staticmethod
    def _all_to_all(call, send, send_counts, receive, receive_counts, stream):
        dtype = tensors.moved(send)[2]
        unit = send.element_size() if dtype == library.BYTE else 1
        send_counts = [count * unit for count in send_counts]
        receive_counts = [count * unit for count in receive_counts]
        call("alltoallv", send.data_ptr(), _sizes(send_counts), _sizes(_starts(send_counts)),
                        receive.data_ptr(), _sizes(receive_counts), _sizes(_starts(receive_counts)), dtype, stream)

    def alltoall(self, outputs, inputs, opts=None):
        return self._exchange("all_to_all", inputs, outputs)

    def alltoall_base(self, output, source, output_splits, input_splits, opts=None):
        tensors.check("all_to_all_single", output, source)
        counts = [self._rows(tensor, splits) for tensor, splits in ((source, input_splits), (output, output_splits))]

        def run(call, stream):
            whole = output.contiguous()
            self._all_to_all(call, source.contiguous(), counts[0], whole, counts[1], stream)
            tensors.put_back(whole, output)

        return self._start(run, [output], [source])

    def _rows(self, tensor, splits):
        """Elements for each rank, of a tensor that is split along its first dimension."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self._size != 0:
                raise Error(f"muster.torch: all_to_all_single got {rows} rows for {self._size} ranks: pass split sizes")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            raise Error(f"muster.torch: all_to_all_single got split sizes {list(splits)} for {rows} rows and "
                        f"{self._size} ranks")
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    # ---- The names that PyTorch 2.15 calls ----

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- Barrier, messages ----

    def barrier(self, opts=None):
        """On a GPU: the work of its current stream is done, too."""
        gpu = self._lanes.gpu
        done = gpu.mark() if gpu else None

        def run(call, _):
            if done:
                done.synchronize()
            call("barrier")

        return self._lanes.host.start(run, [])

    def _edge(self, sender, receiver, tag):
        edge = (sender, receiver, tag)
        if edge not in self._edges:
            key = f"muster/{self._name}/from {sender} to {receiver} tag {tag}"
            label = f"{self._label}message from rank {sender} to rank {receiver}: "
            self._edges[edge] = Lanes(key, label, self._store, int(self._rank == receiver), 2, self._timeout,
                                      apart=True)
        return self._edges[edge]

    def _message(self, name, values, sender, receiver, tag):
        tensor = _only(name, "tensors", values)
        tensors.check(name, tensor)
        if sender == receiver:
            raise Error(f"muster.torch: rank {self._rank} cannot {name} to itself")

        def run(call, stream):
            data = tensor.contiguous()
            call(name, *tensors.moved(data), int(self._rank == sender), stream)
            if name == "recv":
                tensors.put_back(data, tensor)

        return self._edge(sender, receiver, tag).of(tensor.device).start(run, [tensor])

    def send(self, values, to, tag=0):
        return self._message("send", values, self._rank, to, tag)

    def recv(self, values, source, tag=0):
        return self._message("recv", values, source, self._rank, tag)

    def recv_anysource(self, values, tag=0):
        raise Error("muster.torch: recv takes the rank of the sender: messages of any rank are not received")


_others = {}  # lanes of no MusterGroup, by key


def lane_of(group=None, device=torch.device("cpu")):
    """[collective] The world of a group for tensors on this device; of the default group whatever its backend is, of
    one rank without any."""
    if group is None and dist.is_initialized():
        group = dist.group.WORLD
    if isinstance(group, MusterGroup):
        return group.lanes.of(device)
    if group is not None and group is not dist.group.WORLD:
        raise Error(f"muster.torch: the group's backend is {dist.get_backend(group)}: pass a group of backend muster")
    key = "muster/alone" if group is None else "muster/beside"
    if key not in _others:
        _others[key] = Lanes(key, "", None, 0, 1, 0) if group is None else Lanes(
            key, "", dist.distributed_c10d._get_default_store(), group.rank(), group.size(), 0)
    return _others[key].of(device)


_beside = collections.Counter()  # worlds of lanes_beside, by group


def lanes_beside(group, purpose):
    """[collective] Worlds of their own for the ranks of a group, whatever its backend is."""
    if isinstance(group, MusterGroup):
        return group.beside(purpose).lanes
    _refuse_elastic()
    known = dist.distributed_c10d._world
    name = known.pg_names[group]
    _beside[name] += 1
    return Lanes(f"muster/{name}/{purpose} {_beside[name]}", "", known.pg_map[group][1], group.rank(), group.size(), 0)


def _refuse_elastic():
    if os.environ.get("MUSTER_ELASTIC", "0") not in ("", "0"):
        raise Error("muster.torch: a process group of PyTorch cannot go on with fewer ranks: unset MUSTER_ELASTIC, "
                    "and start the job again from its checkpoint")


def _create(options, _):
    _refuse_elastic()
    seconds = options.timeout.total_seconds() if options.timeout != default_pg_timeout else 0
    return MusterGroup(options.store, options.group_rank, options.group_size, seconds, options.group_id)


def register():
    """Make the backend known to torch.distributed, once."""
    ending.prepare()
    if not hasattr(dist.Backend, "MUSTER"):
        dist.Backend.register_backend("muster", _create, extended_api=True, devices=["cpu", "cuda"])
