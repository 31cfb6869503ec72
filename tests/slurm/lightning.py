# SPDX-License-Identifier: BSD-3-Clause
# lightning.py - a PyTorch Lightning program for two devices, on CPUs. Prints which environment
# Lightning found, and a line for each rank at the end.
import warnings

warnings.filterwarnings("ignore")
import pytorch_lightning as pl
import torch


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


trainer = pl.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_steps=2,
    enable_progress_bar=False,
    enable_checkpointing=False,
    enable_model_summary=False,
    logger=False,
)
environment = trainer.strategy.cluster_environment
if trainer.global_rank == 0:
    print(
        type(environment).__name__,
        "ranks start elsewhere:",
        environment.creates_processes_externally,
        flush=True,
    )
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4))
print(f"rank {trainer.global_rank} of {trainer.world_size} is done", flush=True)
