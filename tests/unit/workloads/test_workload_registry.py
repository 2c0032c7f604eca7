import re
import subprocess
import sys

import data_sets
import pytest
import torch
from training_alone import FakeClock

from wanbench.workloads.compute.task import EmulatedTask, LearningTask
from wanbench.workloads.data.datasets import WorkloadError
from wanbench.workloads.models.builtins import BUILTINS
from wanbench.workloads.models.learner import LearnerError
from wanbench.workloads.registry import info, make_task

MIB = 1 << 20
NUMBERS = {"params": 1000, "step_time": "300ms"}


def a_model(rank, world_size, seed, batch_size):
    module = torch.nn.Linear(4, 2)
    batch = (torch.full((batch_size, 4), float(rank)), torch.zeros(batch_size, dtype=torch.long))
    return module, [batch], torch.nn.functional.cross_entropy


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setitem(sys.modules, "a_package", sys.modules[__name__])
    return {"model": "a_package:a_model"}


def refused(message, spec, train=None):
    with pytest.raises(WorkloadError, match=f"^{re.escape(message)}$"):
        info(spec, train)


def test_resnet50_is_300_ms_and_102_mb():
    resnet = info({"name": "resnet50-v100"})
    assert (resnet.params, resnet.tensors, resnet.step_time_s) == (25_557_032, 161, 0.3)
    assert (resnet.message_bytes, resnet.learns, resnet.dataset) == (102_228_128, False, None)


def test_planning_does_not_import_torch():
    code = (
        "import sys; from wanbench.workloads.registry import BUILTINS, info\n"
        "for name in BUILTINS: info({'name': name}).bucket_schedule(1 << 20)\n"
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_payload_scale_scales_messages_and_buckets_but_not_time():
    full, scaled = info({"name": "resnet50-v100"}), info({"name": "resnet50-v100", "payload_scale": 0.01})
    assert scaled.params == full.params
    assert scaled.message_bytes == 4 * 255_570
    assert sum(nbytes for nbytes, _ in scaled.bucket_schedule(25 * MIB)) == scaled.message_bytes
    ready = [[ready_s for _, ready_s in w.bucket_schedule(25 * MIB)] for w in (full, scaled)]
    assert ready[0] == ready[1]


def test_the_last_bucket_is_ready_at_the_end_of_the_step():
    schedule = info({"name": "resnet50-v100"}).bucket_schedule(25 * MIB)
    times = [ready_s for _, ready_s in schedule]
    assert times == sorted(times)
    assert times[0] > 0.1
    assert times[-1] == 0.3


def test_numbers_are_split_evenly_over_tensors():
    numbers = info({**NUMBERS, "params": 10, "tensors": 3})
    assert [tensor.numel for tensor in numbers.parameters] == [4, 3, 3]
    assert (numbers.name, numbers.step_cv, numbers.tensors) == ("by-numbers-10", 0.02, 3)


def test_seven_billion_parameters_are_planned_on_a_laptop():
    big = info({"params": 7_000_000_000, "tensors": 291, "step_time": "2s", "payload_scale": 0.001})
    assert big.message_bytes == 28_000_000


def test_a_step_time_replaces_the_published_one():
    faster = info({"name": "resnet50-v100", "step_time": "150ms", "step_cv": 0})
    assert (faster.step_time_s, faster.step_cv) == (0.15, 0.0)


def test_digits_learn_for_real_in_an_emulated_time_unless_asked_for_real_time():
    digits = info({"name": "digits-cnn"})
    assert (digits.learns, digits.dataset, digits.step_time_s) == (True, "digits", 0.02)
    real = info({"name": "digits-cnn", "step_time": "real"})
    assert (real.step_time_s, real.step_cv) == (None, 0.0)


def test_a_model_computes_for_real_unless_given_a_step_time(model):
    real = info(model)
    assert (real.name, real.params, real.tensors, real.step_time_s) == ("a_package:a_model", 10, 2, None)
    emulated = info({**model, "step_time": "50ms"})
    assert (emulated.step_time_s, emulated.step_cv, emulated.learns) == (0.05, 0.02, True)


def test_real_compute_has_no_schedule_before_it_runs(model):
    message = "a_package:a_model has no schedule before it runs: its compute is real, not emulated"
    with pytest.raises(WorkloadError, match=f"^{message}$"):
        info(model).bucket_schedule(MIB)


def test_the_json_form_names_everything_but_the_single_tensors():
    assert info({"name": "resnet50-v100", "payload_scale": 0.5}).to_json() == {
        "name": "resnet50-v100",
        "params": 25_557_032,
        "tensors": 161,
        "payload_scale": 0.5,
        "step_time_s": 0.3,
        "step_cv": 0.02,
        "learns": False,
        "dataset": None,
        "message_bytes": 51_114_064,
    }


@pytest.mark.parametrize("name", BUILTINS)
def test_a_task_has_as_many_elements_as_was_announced(name, tmp_path):
    scale = {"payload_scale": 0.01} if BUILTINS[name].network is None else {}
    spec = {"name": name, **scale, **data_sets.given(name, tmp_path)}
    task = make_task(spec, 1, 4, 1, FakeClock(), MIB)
    assert task.w.numel() * 4 == info(spec).message_bytes


def test_the_kind_of_task_follows_from_whether_something_is_learned(model):
    assert isinstance(make_task(NUMBERS, 0, 1, 1, FakeClock(), MIB), EmulatedTask)
    assert isinstance(make_task(model, 0, 1, 1, FakeClock(), MIB), LearningTask)


def test_ranks_of_a_model_start_equal_and_get_their_own_data(model):
    first = make_task(model, 0, 2, 5, FakeClock(), MIB)
    torch.rand(7)
    second = make_task(model, 1, 2, 5, FakeClock(), MIB)
    assert torch.equal(first.w, second.w)
    assert not torch.equal(first.gradient(0)[0], second.gradient(0)[0])


def test_the_seed_decides_where_a_model_starts(model):
    first, second = (make_task(model, 0, 1, seed, FakeClock(), MIB) for seed in (1, 2))
    assert not torch.equal(first.w, second.w)


def test_a_worker_makes_its_model_once(model, monkeypatch):
    made = []

    def counting(*arguments):
        made.append(arguments)
        return a_model(*arguments)

    monkeypatch.setattr(sys.modules[__name__], "counting", counting, raising=False)
    make_task({"model": "a_package:counting"}, 1, 2, 5, FakeClock(), MIB, {"batch_size": 8})
    assert made == [(1, 2, 5, 8)]


def test_random_numbers_after_make_differ_between_ranks_and_repeat(model):
    drawn = []
    for rank in (0, 1, 0):
        make_task(model, rank, 2, 5, FakeClock(), MIB)
        drawn.append(torch.rand(1).item())
    assert drawn[0] == drawn[2] != drawn[1]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("payload_scale", 0.5, "workload.payload_scale: expected 1, got 0.5"),
        ("step_cv", -1, "workload.step_cv: expected a number"),
    ],
)
def test_keys_are_checked_before_data_are_read(tmp_path, key, value, message):
    spec = {"name": "mnist-cnn", "data": str(tmp_path / "absent"), key: value}
    with pytest.raises(WorkloadError, match=f"^{re.escape(message)}"):
        make_task(spec, 0, 2, 0, FakeClock(), MIB)


def test_an_unknown_name_gets_a_near_miss():
    refused(
        f"workload.name: unknown workload 'resnet50-v10'; did you mean 'resnet50-v100'? (known: {', '.join(BUILTINS)})",
        {"name": "resnet50-v10"},
    )


@pytest.mark.parametrize(
    ("spec", "got"),
    [
        ({}, "none"),
        ({"name": "digits-cnn", **NUMBERS}, "name and params"),
        ({"model": "a:b", "command": "c"}, "model and command"),
    ],
)
def test_a_workload_is_exactly_one_thing(spec, got):
    refused(f"workload: expected exactly one of name, params, model or command, got {got}", spec)


def test_what_goes_with_a_command_goes_with_nothing_else():
    refused(
        "workload.warmup: not allowed with name; only command takes it", {"name": "digits-cnn", "warmup": "3 steps"}
    )
    refused(
        "workload.step_time: not allowed with command; only name or params or model takes it",
        {"command": ["train.py"], "step_time": "1s"},
    )


def test_tensors_belong_to_numbers():
    refused("workload.tensors: not allowed with name; only params takes it", {"name": "digits-cnn", "tensors": 3})


@pytest.mark.parametrize("params", [0, -5, 1.5, "25M", True])
def test_parameters_are_a_whole_number(params):
    refused(
        f"workload.params: expected a whole number of at least 1, got {params!r}",
        {**NUMBERS, "params": params},
    )


def test_more_tensors_than_parameters_are_refused():
    refused(
        "workload.tensors: 7 tensors cannot share 3 parameters; expected at most 3",
        {**NUMBERS, "params": 3, "tensors": 7},
    )


def test_numbers_need_a_step_time():
    refused('workload.step_time: missing; a workload by numbers needs one, such as "300ms"', {"params": 10})


@pytest.mark.parametrize(
    ("step_time", "problem"),
    [
        ("300", "has no unit"),
        ("300MB", "has the unknown unit 'MB'"),
        ("-1ms", "is negative"),
        ("soon", "is not a quantity"),
        ("nanms", "is not a quantity"),
    ],
)
def test_a_step_time_with_a_wrong_or_missing_unit_is_refused(step_time, problem):
    message = re.escape(f"workload.step_time: {step_time!r} {problem}; ")
    with pytest.raises(WorkloadError, match=f"^{message}"):
        info({**NUMBERS, "step_time": step_time})


def test_a_step_time_without_length_is_refused():
    refused(
        "workload.step_time: expected more than zero, such as \"300ms\", got '0ms'",
        {**NUMBERS, "step_time": "0ms"},
    )


def test_a_workload_that_learns_nothing_has_no_real_time():
    with pytest.raises(WorkloadError, match=r"^workload\.step_time: "):
        info({"name": "resnet50-v100", "step_time": "real"})


@pytest.mark.parametrize("cv", [-0.1, float("nan"), float("inf")])
def test_a_variation_is_a_finite_number(cv):
    refused(
        f"workload.step_cv: expected a number of at least 0, such as 0.02, got {cv!r}",
        {**NUMBERS, "step_cv": cv},
    )


def test_real_compute_takes_no_variation(model):
    refused(
        "workload.step_cv: real compute has its own variation; add step_time to emulate it",
        {**model, "step_cv": 0.1},
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5])
def test_payload_scale_is_a_part_of_the_whole(scale):
    refused(
        f"workload.payload_scale: expected a number above 0 and up to 1, got {scale!r}",
        {**NUMBERS, "payload_scale": scale},
    )


def test_payload_scale_is_no_text():
    refused(
        "workload.payload_scale: expected a number above 0 and up to 1, got '1%'",
        {**NUMBERS, "payload_scale": "1%"},
    )


def test_real_gradients_cannot_be_scaled():
    refused(
        "workload.payload_scale: expected 1, got 0.1; the workload trains a model, and real gradients cannot be scaled",
        {"name": "digits-cnn", "payload_scale": 0.1},
    )


def test_a_batch_has_at_least_one_sample():
    refused(
        "train.batch_size: expected a whole number of at least 1, got 0",
        {"name": "digits-cnn"},
        {"batch_size": 0},
    )


def test_a_wrong_rule_for_shards_is_refused():
    refused(
        'train.shards: expected "iid" or "dirichlet:ALPHA" with ALPHA above 0, such as "dirichlet:0.5", '
        "got 'dirichlet'",
        {"name": "digits-cnn"},
        {"shards": "dirichlet"},
    )


@pytest.mark.parametrize("spec", [NUMBERS, {"model": "a_package:a_model"}, {"name": "resnet50-v100"}])
def test_only_data_of_ours_are_sharded_here(model, spec):
    ours = ", ".join(name for name, builtin in BUILTINS.items() if builtin.network is not None)
    refused(f"train.shards: only {ours} take it; other workloads divide their own data", spec, {"shards": "iid"})


def test_only_digits_are_cut_into_folds_and_into_at_least_two():
    refused("train.folds: only digits-cnn takes it", {"name": "gpt-stdlib"}, {"folds": 5})
    refused("train.folds: expected a whole number of at least 2, got 1", {"name": "digits-cnn"}, {"folds": 1})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a_package", "workload.model: expected \"package.module:make\", got 'a_package'"),
        ("a_package:nothing", "workload.model: 'a_package' has no function 'nothing'"),
        (
            "no_such_package:make",
            "workload.model: cannot import 'no_such_package' of 'no_such_package:make': "
            "ModuleNotFoundError: No module named 'no_such_package'",
        ),
    ],
)
def test_a_model_that_cannot_be_found_is_refused(model, path, message):
    with pytest.raises(LearnerError, match=f"^{re.escape(message)}$"):
        info({"model": path})


GOOD = (torch.nn.Linear(2, 2), [], torch.nn.functional.mse_loss)


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (
            GOOD[:2],
            " returned a tuple of 2; expected (module, batches, loss) or (module, batches, loss, evaluate)",
        ),
        (("module", *GOOD[1:]), ": expected a torch.nn.Module first, got an object of type str"),
        ((GOOD[0], 3, GOOD[2]), ": expected batches second, got an object of type int"),
        ((*GOOD[:2], 1.0), ": expected a loss function third, got an object of type float"),
        ((*GOOD, 0.9), ": expected a function fourth, got an object of type float"),
        ((torch.nn.ReLU(), *GOOD[1:]), ": the module has no trainable parameters"),
        (
            (torch.nn.Linear(2, 2).double(), *GOOD[1:]),
            ": parameter 'weight' is torch.float64 on cpu; expected torch.float32 on cpu",
        ),
    ],
)
def test_a_model_that_makes_something_else_is_refused(model, monkeypatch, made, complaint):
    monkeypatch.setattr(sys.modules[__name__], "a_model", lambda *arguments: made)
    message = f"workload.model: 'a_package:a_model'{complaint}"
    with pytest.raises(LearnerError, match=f"^{re.escape(message)}$"):
        info(model)


def test_an_error_inside_make_is_told_in_one_line(model, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "a_model", lambda: None)
    with pytest.raises(LearnerError, match=r"^workload\.model: 'a_package:a_model' raised TypeError: .*takes 0"):
        info(model)
