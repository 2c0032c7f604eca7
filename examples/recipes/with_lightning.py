"""Lightning: it finds ranks and addresses in the environment that torchrun would set."""

import os
import time

import lightning
import torch

STEPS = 10


class Model(lightning.LightningModule):
    """A linear classifier that remembers its last loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layer(inputs), labels)
        self.last_loss = loss.detach()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.05)

    def on_train_start(self) -> None:
        """Attach the algorithm that the environment names; without one this is plain DDP."""
        if "WANBENCH_ALGORITHM" in os.environ:
            import wanbench

            self.attached = wanbench.attach(self.trainer.strategy.model, self.optimizers())

    def on_train_end(self) -> None:
        """Make the model the mean over all ranks."""
        if "WANBENCH_ALGORITHM" in os.environ:
            self.attached.final()


lightning.seed_everything(0)
examples = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
model = Model()
trainer = lightning.Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_steps=STEPS,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
began = time.monotonic()
trainer.fit(model, torch.utils.data.DataLoader(examples, batch_size=32))
if trainer.global_rank == 0:
    print(f"loss {model.last_loss:.5f}", flush=True)
    print(f"{1000 * (time.monotonic() - began) / STEPS:.0f} ms per step", flush=True)
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
