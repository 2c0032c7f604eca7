"""Launch lines of well-known projects, and what worker 1 of 2 runs in their place."""

from __future__ import annotations

import shlex
import time

import pytest

from wanbench.harness.errors import SpecError
from wanbench.harness.spec.launch_lines import Node, cause, remarks, rewritten

SECOND = Node("1", 2, "10.99.0.1")
TORCH = "--nnodes=2 --node_rank=1 --master_addr=10.99.0.1 --master_port=29500"
MACHINE = "--machine_rank=1 --num_machines=2 --main_process_ip=10.99.0.1 --main_process_port=29500"
AS_IT_IS = None

# Project, its line reduced to what concerns the launch, what runs.
LINES = [
    ("nanoGPT", "torchrun --standalone --nproc_per_node=4 train.py config/train_gpt2.py",
     "torchrun --nproc_per_node=4 train.py config/train_gpt2.py"),
    ("nanoGPT", "torchrun --nproc_per_node=8 --nnodes=2 --node_rank=0 --master_addr=1.2.3.4 --master_port=99 train.py",
     f"torchrun --nproc_per_node=8 {TORCH} train.py"),
    ("torch", "torchrun train.py", AS_IT_IS),
    ("torch elastic", "torchrun --nnodes=1:4 --nproc-per-node=2 --max-restarts=3 --rdzv-id=7 --rdzv-backend=c10d "
     "--rdzv-endpoint=host1.example:29400 train.py --arg1",
     "torchrun --nnodes=1:4 --nproc-per-node=2 --max-restarts=3 --rdzv-id=7 --rdzv-backend=c10d "
     "--rdzv-endpoint=10.99.0.1:29500 train.py --arg1"),
    ("torch elastic", "torchrun --nnodes=3:4 --rdzv-backend=c10d --rdzv-endpoint=host1 train.py",
     "torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=10.99.0.1:29500 train.py"),
    ("torch, static range", "torchrun --nnodes 1:4 train.py", "torchrun --nnodes=2 train.py"),
    ("torch examples", "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-id 100 --rdzv-backend c10d "
     "--rdzv-endpoint 172.31.43.139:29400 multinode.py 50 10",
     "torchrun --nnodes=2 --nproc-per-node 4 --rdzv-id 100 --rdzv-backend c10d "
     "--rdzv-endpoint=10.99.0.1:29500 multinode.py 50 10"),
    ("without an endpoint", "torchrun --nnodes 2 --rdzv-backend c10d train.py",
     "torchrun --rdzv_endpoint=10.99.0.1:29500 --nnodes=2 --rdzv-backend c10d train.py"),
    ("FSDP tutorial", "torchrun --nnodes 1 --nproc_per_node 4 T5_training.py",
     "torchrun --nnodes=2 --nproc_per_node 4 T5_training.py"),
    ("torchtitan", "torchrun --nproc_per_node=8 --rdzv_backend c10d --rdzv_endpoint=localhost:0 --local-ranks-filter 0 "
     "--role rank --tee 3 -m torchtitan.train --job.config_file debug_model.toml",
     "torchrun --nproc_per_node=8 --rdzv_backend c10d --rdzv_endpoint=10.99.0.1:29500 --local-ranks-filter 0 "
     "--role rank --tee 3 -m torchtitan.train --job.config_file debug_model.toml"),
    ("transformers", "python -m torch.distributed.run --nproc_per_node=2 --nnode=2 --node_rank=0 "
     "--master_addr=hostname1 --master_port=9901 train.py",
     "python -m torch.distributed.run --nproc_per_node=2 --nnode=2 --node_rank=1 --master_addr=10.99.0.1 "
     "--master_port=29500 train.py"),
    ("Megatron-LM", "torchrun --nproc_per_node 8 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 6000 "
     "pretrain_gpt.py --tensor-model-parallel-size 1 --node-rank 7",
     f"torchrun --nproc_per_node 8 {TORCH} pretrain_gpt.py --tensor-model-parallel-size 1 --node-rank 7"),
    ("DINO", "python -m torch.distributed.launch --nproc_per_node=8 main_dino.py --arch vit_small", AS_IT_IS),
    ("DETR", "python -u -m torch.distributed.launch --nproc_per_node=8 --use_env main.py --coco_path c", AS_IT_IS),
    ("fairseq", "python -m torch.distributed.launch --nproc_per_node=8 --nnodes=2 --node_rank=0 "
     "--master_addr=192.168.1.1 --master_port=12345 fairseq_train.py --task translation",
     f"python -m torch.distributed.launch --nproc_per_node=8 {TORCH} fairseq_train.py --task translation"),
    ("timm", "torchrun --nproc_per_node=4 train.py --data-dir d --model seresnet34", AS_IT_IS),
    ("prime", "uv run torchrun --nproc_per_node=2 --node-rank 0 --rdzv-endpoint localhost:10001 --nnodes=1 train.py",
     "uv run torchrun --nproc_per_node=2 --node-rank=1 --rdzv-endpoint=10.99.0.1:29500 --nnodes=2 train.py"),
    ("torchtune", "tune run --nnodes 4 --nproc_per_node 8 full_finetune_distributed --config llama",
     "tune run --nnodes=2 --nproc_per_node 8 full_finetune_distributed --config llama"),
    ("accelerate", "accelerate launch --multi_gpu --num_processes 16 --num_machines 4 --machine_rank 0 "
     "--main_process_ip 10.0.0.1 --main_process_port 29500 train.py",
     "accelerate launch --multi_gpu --num_processes 16 --num_machines=2 --machine_rank=1 "
     "--main_process_ip=10.99.0.1 --main_process_port=29500 train.py"),
    ("accelerate", "accelerate launch --mixed_precision bf16 nlp_example.py",
     f"accelerate launch {MACHINE} --mixed_precision bf16 nlp_example.py"),
    ("Axolotl", "accelerate launch -m axolotl.cli.train lora.yml",
     f"accelerate launch {MACHINE} -m axolotl.cli.train lora.yml"),
    ("OpenDiLoCo", "torchrun --nproc_per_node=8 train_fsdp.py --hv.local-steps 500 --hv.world-rank 0", AS_IT_IS),
    ("Lightning", "fabric run --node-rank=0 --main-address=10.10.10.16 --devices=8 --num-nodes=2 train.py",
     "fabric run --main_port=29500 --node-rank=1 --main-address=10.99.0.1 --devices=8 --num-nodes=2 train.py"),
    ("Lightning", "lightning run model train.py",
     "lightning run model --node_rank=1 --num_nodes=2 --main_address=10.99.0.1 --main_port=29500 train.py"),
    ("DeepSpeed", "deepspeed --hostfile=myhostfile --no_ssh --node_rank=0 --master_addr=10.0.0.1 --master_port=9901 "
     "train.py --deepspeed --deepspeed_config ds.json",
     "deepspeed --hostfile=myhostfile --no_ssh --node_rank=1 --master_addr=10.99.0.1 --master_port=29500 "
     "train.py --deepspeed --deepspeed_config ds.json"),
    ("DeepSpeed through ssh", "deepspeed --hostfile=myhostfile train.py",
     "deepspeed --no_ssh --node_rank=1 --master_addr=10.99.0.1 --master_port=29500 --hostfile=myhostfile train.py"),
    ("LLaMA-Factory", "env FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=192.168.0.1 MASTER_PORT=29500 "
     "llamafactory-cli train x.yaml", "env FORCE_TORCHRUN=1 llamafactory-cli train x.yaml"),
    ("env://", "python train.py --lr 0.1", AS_IT_IS),
    ("env prefix", "env RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost PET_NPROC_PER_NODE=2 python train.py MASTER_ADDR=x",
     "env PET_NPROC_PER_NODE=2 python train.py MASTER_ADDR=x"),
    ("prefixes and a path", "nohup env A=1 nice -n 5 /opt/venv/bin/torchrun --local-addr 10.0.0.7 --nnodes 8 train.py",
     "nohup env A=1 nice -n 5 /opt/venv/bin/torchrun --nnodes=2 train.py"),
    ("detectron2", "python train_net.py --num-machines 2 --machine-rank 0 --dist-url tcp://10.0.0.1:2345", AS_IT_IS),
    ("a shell", "sh -c 'torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 train.py'", AS_IT_IS),
    ("a script", "bash run.sh torchrun --nnodes 4", AS_IT_IS),
    ("the end of options", "fabric run -- train.py --node-rank 3",
     "fabric run --node_rank=1 --num_nodes=2 --main_address=10.99.0.1 --main_port=29500 -- train.py --node-rank 3"),
    ("an ambiguous option", "torchrun --mast x train.py", "torchrun --mast=10.99.0.1 train.py"),
    ("an option without a value, and no program", "torchrun --nnodes", "torchrun --nnodes=2"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "runs"), [line[1:] for line in LINES], ids=[f"{n}-{line[0]}" for n, line in enumerate(LINES)]
)
def test_a_line_for_several_machines_has_the_place_of_each_worker(line, runs):
    assert shlex.join(rewritten(shlex.split(line), SECOND)) == (line if runs is None else runs)


def test_whoever_starts_a_line_sees_the_one_that_runs_and_what_cannot_be_replaced():
    assert list(remarks(["torchrun", "--nnodes", "8", "--node-rank=3", "my train.py"], SECOND)) == [
        "on each worker: torchrun --nnodes=2 --node-rank={rank} 'my train.py'"
    ]
    assert list(remarks(["torchrun", "train.py"], SECOND)) == []
    (warning,) = remarks(["sh", "-c", "torchrun --node-rank 0 train.py"], SECOND)
    assert warning == (
        "warning: --node-rank 0 is the same on every worker; in a line of `sh -c '...'`, use $NODE_RANK, $NNODES, "
        "$MASTER_ADDR and $MASTER_PORT"
    )
    alone = Node("0", 1, "10.99.0.1")
    assert list(remarks(["sh", "-c", "torchrun --node-rank 0 train.py"], alone)) == []


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("python t.py --machine-rank 0 --dist-url auto", "--machine-rank 0"),
        ("python t.py --dist-url tcp://10.0.0.1:2345", "--dist-url tcp://10.0.0.1:2345"),
        (
            "fairseq-train d --distributed-init-method tcp://10.0.0.1:9000",
            "--distributed-init-method tcp://10.0.0.1:9000",
        ),
        ("torchrun --rdzv_endpoint='localhost:0' t.py", "--rdzv_endpoint='localhost:0"),
        ("export MASTER_ADDR=127.0.0.1", "MASTER_ADDR=127.0.0.1"),
        ('os.environ["MASTER_ADDR"] = "localhost"', 'MASTER_ADDR"] = "localhost'),
        ("torchrun --node_rank $RANK --master_addr $MASTER_ADDR t.py", None),
        ("MASTER_ADDR=${MASTER_ADDR:-localhost} torchrun --master_addr 10.99.0.1 t.py", None),
        ('os.environ.setdefault("MASTER_ADDR", "localhost")', None),
        ("if node_rank == 0: print(1)", None),
        ("python ps.py --world_size=2 --rank=0", "--rank=0"),
        ("python main.py --world-size 2 --rank 0 data", "--rank 0"),
        ("python lora.py --rank 16 --lora-rank 0", None),
    ],
)
def test_a_fixed_place_is_found_in_lines_and_scripts_and_a_default_is_not(tmp_path, text, fixed):
    warnings = [*remarks(["sh", "-c", text], SECOND)]
    assert [line.partition(" is the same")[0] for line in warnings] == ([f"warning: {fixed}"] if fixed else [])
    (tmp_path / "t.txt").write_text(f"\n{text}\n")
    why = cause(["python", "t.txt"], SECOND, tmp_path)
    assert why.startswith(f"t.txt: {fixed} is the same" if fixed else "the program must form its group from RANK")


def test_only_small_files_of_a_command_are_searched_and_long_words_do_not_take_long(tmp_path):
    fixed = "MASTER_ADDR=localhost"
    (tmp_path / "data.bin").write_text("x" * 999_900 + f"\n{fixed}")
    began = time.monotonic()
    assert f"data.bin: {fixed}" in cause(["train", "data.bin"], SECOND, tmp_path)
    assert time.monotonic() - began < 2
    (tmp_path / "data.bin").write_text("x" * 1_000_000 + f"\n{fixed}")
    assert "must form its group" in cause(["train", "data.bin"], SECOND, tmp_path)


def test_what_was_replaced_is_not_the_cause_of_silence(tmp_path):
    line = "torchrun --node-rank 0 --master-addr 10.0.0.1 --nnodes 2 train.py"
    assert "must form its group" in cause(line.split(), Node("0", 2, "10.99.0.1"), tmp_path)


def test_a_launcher_of_mpi_that_ran_on_each_worker_is_the_cause_of_silence(tmp_path):
    assert "run it once: wanbench exec --launcher" in cause(["/usr/bin/mpirun", "a.out"], SECOND, tmp_path)


def test_a_launcher_that_would_run_several_times_on_a_worker_is_refused():
    with pytest.raises(SpecError) as caught:
        list(remarks(["python", "-m", "torch.distributed.run", "t.py"], Node("0", 2, "10.99.0.1", processes=3)))
    assert str(caught.value) == (
        "torchrun: starts all processes of a worker, but 3 of it would run on each; tell only torchrun how many "
        "(torchrun --nproc-per-node 3), not wanbench"
    )
    assert list(remarks(["python", "t.py"], Node("0", 2, "10.99.0.1", processes=3))) == []
