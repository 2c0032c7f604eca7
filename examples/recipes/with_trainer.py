"""The Trainer of Hugging Face transformers."""

import os
import time

import torch
import torch.distributed as dist
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

STEPS = 10


class Model(torch.nn.Module):
    """A linear classifier that remembers its last loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch."""
        loss = torch.nn.functional.cross_entropy(self.layer(inputs), labels)
        self.last_loss = loss.detach()
        return {"loss": loss}


class Attach(TrainerCallback):
    """Attach the algorithm that the environment names; without one this is plain DDP."""

    def on_train_begin(self, args: object, state: object, control: object, **more: object) -> None:
        """Begin with the model in DDP, which the Trainer has made by now."""
        if "WANBENCH_ALGORITHM" in os.environ:
            import wanbench

            self.training = wanbench.attach(trainer.model_wrapped, trainer.optimizer)

    def on_train_end(self, args: object, state: object, control: object, **more: object) -> None:
        """Make the model the mean over all ranks."""
        if "WANBENCH_ALGORITHM" in os.environ:
            self.training.final()


set_seed(0)
examples = [{"inputs": torch.randn(64), "labels": torch.randint(10, ())} for _ in range(2048)]
arguments = TrainingArguments(
    output_dir=os.environ.get("TMPDIR", "/tmp"),
    per_device_train_batch_size=32,
    max_steps=STEPS,
    learning_rate=0.05,
    use_cpu=True,
    ddp_find_unused_parameters=False,  # as attach needs it
    ddp_broadcast_buffers=False,  # the same, for a model with buffers
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
model = Model()
trainer = Trainer(model=model, args=arguments, train_dataset=examples, callbacks=[Attach()])
began = time.monotonic()
trainer.train()
total = model.last_loss
dist.all_reduce(total)
if dist.get_rank() == 0:
    print(f"loss {total / dist.get_world_size():.5f}", flush=True)
    print(f"{1000 * (time.monotonic() - began) / STEPS:.0f} ms per step", flush=True)
dist.destroy_process_group()
time.sleep(0.2)  # gloo's threads can abort a Python that ends at once: pytorch/pytorch#179291
