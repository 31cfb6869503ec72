# SPDX-License-Identifier: BSD-3-Clause
"""How the process ends: worlds are closed in order, or the status of a failure is kept."""
import atexit
import os
import sys

from muster import library
from muster.torch import lane


class _End:
    uncaught = None  # the exception that ends the program
    hook = None  # what printed exceptions before


def _except_hook(kind, value, trace):
    _End.uncaught = value
    _End.hook(kind, value, trace)


def _status():
    """Of the failure that ends the program; None where it is not libmuster's."""
    if isinstance(_End.uncaught, library.Error):
        return _End.uncaught.status
    # DDP waits in C++, from where only the text arrives.
    text = str(_End.uncaught)
    return next((failure.status for failure in library.failures if str(failure) in text), None)


def _leave(status):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _at_exit():
    status = _status()
    if status is not None:
        _leave(status)
    # A program that dies leaves its worlds open: the other ranks get its name at once.
    if _End.uncaught is not None or library.failures:
        for one in lane.lanes:
            one.stop(1)  # Python must not end while a thread is on its way back from C
        return
    try:
        lane.close_all()
    except library.Error as error:
        print(f"muster: {error}", file=sys.stderr)
        _leave(error.status)


def prepare():
    """Once, before the first failure."""
    if _End.hook is None:
        _End.hook = sys.excepthook
        sys.excepthook = _except_hook
        atexit.register(_at_exit)
