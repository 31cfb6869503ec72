# SPDX-License-Identifier: BSD-3-Clause
"""Rows of gradients on a GPU: all ranks gather them, and add them in the order of the ranks.

  output layer's part -> weight.grad -> hook -> all-reduce, in place -.
  gradient of the look-ups -> its rows -> all-gather -----------------+-> weight.grad

Nothing waits for the GPU: a message has as many rows as the rank with most look-ups, and the numbers of look-ups are
exchanged in host memory. A row that is there twice has its values once, so the order in which a GPU adds is the same
for all ranks.
"""
import torch
import torch.distributed as dist

from muster.library import Error
from muster.torch.rows_pass import Exchange, Uncopied

_NUMBER = 8  # bytes of a row's number


class _Rows(Uncopied):
    """A weight of the exchange: the parts of its gradient in this backward pass."""

    def __init__(self, exchange, name, weight):
        self.exchange, self._name, self._weight = exchange, name, weight
        self.clear()
        weight.register_post_accumulate_grad_hook(self._accumulated)

    def clear(self):
        self.turn = -1  # of the dense part, among those of this pass; -1: there is none
        self._dense = None  # its all-reduce
        self._sum = None  # gradient of this rank's look-ups
        self._indices = []
        self._gathered = self._sent = None

    @property
    def count(self):
        """Look-ups of this rank; -1: none was made."""
        return sum(len(indices) for indices in self._indices) if self._indices else -1

    def add(self, indices, values, padding_idx):
        padding = -1 if padding_idx is None else padding_idx
        part = torch.ops.aten.embedding_dense_backward(values.to(self._weight.dtype), indices, self._weight.shape[0],
                                                       padding, False)
        if self.exchange.armed:
            self._sum = part if self._sum is None else self._sum.add_(part)
            self._indices.append(indices)
            self.exchange.end_with_pass()
        else:  # a pass that exchanges nothing
            self._weight.grad = part if self._weight.grad is None else self._weight.grad.add_(part)

    def _accumulated(self, _):
        if self.exchange.armed:
            if self._dense:
                raise Error(f"muster.torch: the gradient of {self._name} became ready twice in a backward pass: leave "
                            "send_rows out")
            self.exchange.end_with_pass()
            self.exchange.dense_ready(self)

    def note_earlier(self):
        """A gradient of earlier passes is a dense part."""
        if self.turn < 0 and self._weight.grad is not None:
            self.exchange.dense_ready(self)

    def start_dense(self):
        if self._dense is None:
            if self._weight.grad is None:
                self._weight.grad = torch.zeros_like(self._weight)
            self._dense = self.exchange.reduce(self._weight.grad)

    def _parts(self, message, n):
        """Numbers and values of the rows in a message."""
        values = message[n * _NUMBER:].view(self._weight.dtype)
        return message[:n * _NUMBER].view(torch.int64), values.view(n, self._weight.shape[1])

    def start(self, counts):
        """counts: look-ups by rank. As rows where those of all have at most the bytes of the gradient."""
        n = max(counts)
        if n < 0:
            return
        row = self._weight.shape[1] * self._weight.element_size()
        if n and len(counts) * n * (row + _NUMBER) <= self._weight.shape[0] * row:
            self._start_rows(n, n * (row + _NUMBER), len(counts))
        else:
            self._sum = torch.zeros_like(self._weight) if self._sum is None else self._sum
            self._sent = self.exchange.reduce(self._sum)

    def _start_rows(self, n, length, size):
        message = torch.zeros(length, dtype=torch.uint8, device=self._weight.device)
        if self.count > 0:
            numbers, values = (part[:self.count] for part in self._parts(message, n))
            torch.sort(torch.cat(self._indices), out=(numbers, torch.empty_like(numbers)))
            torch.index_select(self._sum, 0, numbers, out=values)
            values[1:].masked_fill_((numbers[1:] == numbers[:-1]).unsqueeze(1), 0)
            self._sum.index_fill_(0, numbers, 0)  # it becomes the place of the mean
        self._gathered = message.new_empty(size, length)
        self._sent = self.exchange.gather(self._gathered, message)

    def finish(self):
        if self._dense:
            self._dense.wait()
        if self._sent:
            self._sent.wait()
            self._weight.grad = self._mean()
        self.clear()

    def _mean(self):
        if self._gathered is None:
            return self._weight.grad.add_(self._sum) if self._dense else self._sum
        mean = self._weight.grad if self._dense else self._sum
        if mean is None:
            mean = torch.zeros_like(self._weight)
        size, length = self._gathered.shape
        n = length // (_NUMBER + self._weight.shape[1] * self._weight.element_size())
        for message in self._gathered:
            numbers, values = self._parts(message, n)
            mean.index_add_(0, numbers, values, alpha=1 / size)
        return mean


class GpuExchange(Exchange):
    """[collective] The weights of a model, which get the values of rank 0."""

    def __init__(self, ddp, weights):
        super().__init__(ddp, next(iter(weights)).device)
        self._group = ddp.process_group.beside("rows")
        for weight in weights:
            self._group.broadcast([weight.data]).wait()
        self.weights = {weight: _Rows(self, name, weight) for weight, name in weights.items()}
        # Dense parts are reduced in the order of the last pass, which is the same on all ranks.
        self._expected = []

    def begin_pass(self):
        super().begin_pass()
        self._turns = 0
        self._waiting = list(self._expected)

    def reduce(self, tensor):
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG
        return self._group.allreduce([tensor], options)

    def gather(self, everything, message):
        return self._group._allgather_base(everything.view(-1), message)

    def dense_ready(self, rows):
        rows.turn = self._turns
        self._turns += 1
        while self._waiting and self._waiting[0].turn >= 0:
            self._waiting.pop(0).start_dense()

    def _gather_numbers(self, numbers):
        """Those of all ranks, through host memory."""
        mine = torch.tensor(numbers, dtype=torch.int64, device="cpu")
        everything = torch.empty(self._group.size() * len(numbers), dtype=torch.int64, device="cpu")
        self._group._allgather_base(everything, mine).wait()
        return everything.view(self._group.size(), -1).t().tolist()

    def finish_pass(self):
        every = list(self.weights.values())
        for rows in every:
            rows.note_earlier()
        numbers = self._gather_numbers([rows.count for rows in every] + [rows.turn for rows in every])
        counts, turns = numbers[:len(every)], numbers[len(every):]
        last = {rows: max(turn) for rows, turn in zip(every, turns) if max(turn) >= 0}
        for rows in self._expected + every:
            if rows in last:
                rows.start_dense()
        self._expected = sorted(last, key=last.get)
        for rows, count in zip(every, counts):
            rows.start(count)
        for rows in every:
            rows.finish()
