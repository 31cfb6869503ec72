#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls that a backward pass starts on a GPU: which thread makes them, in which order, and where a failure is raised.

The passes are real ones, in host memory. Each line is "ok" or "not ok" and a sentence.
"""
import threading

import torch

torch.cuda.is_current_stream_capturing = lambda: False  # PyTorch without CUDA has none

from muster.torch.passes import Backward  # noqa: E402

backward = Backward()
made = []  # (what, thread)


def ok(text, passed):
    print(f"{'ok' if passed else 'not ok'} - {text}", flush=True)


def call(what, go=None):
    if go:
        go.wait(10)
    made.append((what, threading.current_thread()))
    return ValueError(what) if what.startswith("bad") else None


def run(*calls, go=None):
    """A pass that starts these calls; False where it was not taken for one."""
    weight = torch.ones(4, requires_grad=True)
    seen = []

    def hook(_):
        seen.append(backward.is_under_way())
        for what in calls:
            backward.put(call, what, go)

    weight.register_hook(hook)
    (2 * weight).sum().backward()
    return seen == [True]


go = threading.Event()
held = torch.ones(4, requires_grad=True)
held.register_hook(lambda _: backward.is_under_way() and backward.put(call, "first", go))
later = torch.ones(4, requires_grad=True)
order = []
held.register_hook(lambda _: (order.append(len(made)), go.set()) and None)
(held * later).sum().backward()
ok("the pass goes on while its call is made", order == [0])
ok("the call is made when backward() returns", [what for what, _ in made] == ["first"])
ok("by another thread", made[0][1] is not threading.main_thread())

ok("outside of a pass there is none", not backward.is_under_way())
made.clear()
ok("a pass is taken for one", run("a", "b") and run("c"))
with backward.done():
    ok("all calls are made, in the order of their start", [what for what, _ in made] == ["a", "b", "c"])
ok("all by one thread", len({thread for _, thread in made}) == 1)

for name in ("bad one", "bad again"):
    try:
        run("good", name, "bad later")
        ok("a failure ends the pass", False)
    except ValueError as error:
        ok("a failure ends the pass with the first error", str(error) == name)
ok("the next pass is well", run("good"))


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, value):
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        backward.is_under_way()
        raise KeyError("the program's own")


try:
    Broken.apply(torch.ones(2, requires_grad=True)).sum().backward()
except KeyError:
    pass
try:
    run("bad after")
    ok("a pass that the program broke off does not hide the failure of the next", False)
except ValueError as error:
    ok("a pass that the program broke off does not hide the failure of the next", str(error) == "bad after")
