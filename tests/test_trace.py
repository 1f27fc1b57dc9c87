"""`train --trace`: a file that Perfetto opens, whose spans are the step program's actions and add up to the steps."""

import json
import re
from collections import Counter, defaultdict

import pytest
import small_run


@pytest.mark.parametrize("layout", [[], ["layout.shard=2"]])
def test_a_trace_is_the_program_and_adds_up(layout, trireme, tmp_path):
    recipe = small_run.write(tmp_path)
    overrides = ["run.steps=6", "eval.samples=0", *layout]
    program = trireme("train", recipe, "--dry-run", *overrides).stdout
    trireme("train", recipe, "run.dir=run", "--trace", 3, *overrides)
    ranks = 2 if layout else 1
    for rank in range(ranks):
        events = json.loads((tmp_path / f"run/trace/rank-{rank}.json").read_text())["traceEvents"]
        spans = [e for e in events if e["ph"] == "X"]
        assert {e["pid"] for e in events} == {rank}
        steps = [e for e in spans if e["cat"] == "step"]
        assert [e["name"] for e in steps] == ["step 3", "step 4", "step 5"]
        actions = [e for e in spans if e["cat"] not in ("step", "waiting")]
        numbers = {int(line.split()[0]) for line in program.splitlines() if re.match(r" *\d+ ", line)}
        assert Counter(e["args"]["action"] for e in actions) == {number: 3 for number in numbers}

        lanes = defaultdict(list)
        for e in spans:
            if e["cat"] != "step":
                lanes[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
        for spans_of_lane in lanes.values():
            assert spans_of_lane == sorted(spans_of_lane)
            for (_, end), (begin, _) in zip(spans_of_lane, spans_of_lane[1:]):
                assert begin >= end - 1e-3  # a nanosecond, in the file's microseconds
            for begin, end in spans_of_lane:
                assert any(s["ts"] <= begin and end <= s["ts"] + s["dur"] for s in steps)


@pytest.mark.parametrize("reference", [False, True])
def test_the_parts_of_a_step_add_up_and_agree_with_its_trace(reference, trireme, tmp_path):
    recipe = small_run.write(tmp_path)
    trireme("train", recipe, "run.dir=run", "--trace", 3, "run.steps=6", "eval.samples=0", "run.threads=2",
            *(["kernel.reference=true"] if reference else []))
    steps = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    steps = {s["step"]: s for s in steps if "kind" not in s}
    parts = ("gemm_seconds", "attention_seconds", "other_compute_seconds", "update_seconds", "waiting_seconds")
    for step in steps.values():
        assert sum(step[p] for p in parts) == pytest.approx(step["step_seconds"], rel=1e-12)
        assert all(step[p] >= 0 for p in parts)
        assert (step["gemm_seconds"] > 0, step["attention_seconds"] > 0) == (not reference, not reference)

    events = json.loads((tmp_path / "run/trace/rank-0.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    seconds = lambda *kinds: sum(e["dur"] for e in spans if e["cat"] in kinds) / 1e6  # noqa: E731
    lanes = len({e["tid"] for e in spans if e["cat"] == "forward"})
    traced = [steps[number] for number in (3, 4, 5)]
    compute = sum(s[p] for s in traced for p in parts[:3])
    assert compute * lanes == pytest.approx(seconds("forward", "backward"), rel=1e-6)  # ns, in a file of µs
    assert sum(s["update_seconds"] for s in traced) * lanes == pytest.approx(seconds("reduce", "norm", "update"), rel=1e-4)


def test_a_trace_needs_a_number_of_steps(trireme, tmp_path):
    assert "--trace" in trireme("train", small_run.write(tmp_path), "--trace", 0, code=2).stderr
