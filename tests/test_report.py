"""What a run leaves behind for people, read with other people's libraries.

The files come from the C++ tests whose names contain `Example`, which write to $TRIREME_EXAMPLES.
"""

import os
import pathlib
import subprocess

import pytest
from conftest import BINARY
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    subprocess.run([pathlib.Path(BINARY).parent / "train_test", "--gtest_filter=*Example*", "--gtest_brief=1"],
                   check=True, env={**os.environ, "TRIREME_EXAMPLES": str(folder)}, stdin=subprocess.DEVNULL)
    return folder


# TensorBoard. The example is a run of six steps, killed in the middle of a record of the sixth and resumed after
# step 3 for two more.

def scalars(accumulator, tag):
    return [(e.step, e.value) for e in accumulator.Scalars(tag)]


def test_tensorboard_reads_each_step_of_a_resumed_run_once(examples):
    accumulator = event_accumulator.EventAccumulator(str(examples / "tensorboard"))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert {"loss", "learning_rate", "grad_norm", "step_seconds", "tokens_per_second", "mfu", "peak_memory_bytes",
            "aux_loss", "eval/loss", "eval/test/auc"} == set(tags)
    assert scalars(accumulator, "loss") == [(s, pytest.approx(8 / s, rel=1e-7)) for s in range(1, 6)]  # fp32 on disk
    assert scalars(accumulator, "peak_memory_bytes") == [(s, 1 << 20) for s in range(1, 6)]
    assert scalars(accumulator, "eval/loss") == [(1, 11.0), (2, 12.0), (3, 13.0)]
    assert scalars(accumulator, "eval/test/auc") == [(5, 0.75)]
    assert all(value != value for _, value in scalars(accumulator, "aux_loss"))  # NaN stays NaN


def test_tensorboard_shows_samples_as_text(examples):
    accumulator = plugin_event_accumulator.EventAccumulator(str(examples / "tensorboard"))
    accumulator.Reload()
    assert set(accumulator.PluginTagToContent("text")) == {"sample/0", "sample/1"}
    first, second = (accumulator.Tensors(tag)[0] for tag in ("sample/0", "sample/1"))
    assert first.step == second.step == 5
    assert first.tensor_proto.string_val == [b"    def f(x):\n      return <b>`x`</b>"]
    assert second.tensor_proto.string_val == ["    class é".encode()]
    assert [d.size for d in first.tensor_proto.tensor_shape.dim] == [1]
