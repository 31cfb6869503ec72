# SPDX-License-Identifier: BSD-3-Clause
"""Are the models of all ranks alike? PyTorch compares the number and shapes of the gradients alone."""
import torch.distributed as dist

from muster.library import ECONTRACT, Error


def _describe(model):
    lines = [f"parameter {name}: shape {list(value.shape)}, {value.dtype}"
             f"{'' if value.requires_grad else ', frozen'}" for name, value in model.named_parameters()]
    return lines + [f"buffer {name}: shape {list(value.shape)}, {value.dtype}" for name, value in model.named_buffers()]


def check_model(model, group=None):
    """[collective] Raise muster.Error with the first difference between the model of rank 0 and of another rank.

    Names, order, shapes, dtypes and requires_grad are compared, those of buffers too.
    """
    models = [None] * dist.get_world_size(group)
    dist.all_gather_object(models, _describe(model), group)
    for rank, other in enumerate(models):
        for number in range(max(len(models[0]), len(other))):
            mine, theirs = (lines[number] if number < len(lines) else "nothing more" for lines in (models[0], other))
            if mine != theirs:
                raise Error(f"the models differ: rank 0 has {mine}, but rank {rank} has {theirs}", ECONTRACT)
