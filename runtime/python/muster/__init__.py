# SPDX-License-Identifier: BSD-3-Clause
"""libmuster from Python. muster.torch has what PyTorch programs use; see muster-torch(7)."""
from muster.library import Error, version

__all__ = ["Error", "version"]
