# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch on libmuster: torch.distributed.init_process_group("muster"). See muster-torch(7)."""
import re

import torch

from muster.library import Error


def _check_release():
    release = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if tuple(int(part) for part in release.groups()) < (2, 1):
        raise Error(f"muster.torch needs PyTorch 2.1 or newer, but this is {torch.__version__}: install a newer one")
    if not torch.distributed.is_available():
        raise Error("muster.torch needs torch.distributed, which this build of PyTorch lacks: install another one")


_check_release()

from muster.torch.checkpoint import Checkpoint  # noqa: E402  (older PyTorch gets the sentence above)
from muster.torch.group import register  # noqa: E402
from muster.torch.model import check_model  # noqa: E402
from muster.torch.parallel import DataParallel  # noqa: E402
from muster.torch.rows import send_rows  # noqa: E402
from muster.torch.sampler import Sampler  # noqa: E402

__all__ = ["Checkpoint", "DataParallel", "Error", "Sampler", "check_model", "send_rows"]
register()
