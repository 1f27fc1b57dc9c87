"""ckpt: what goes in from Hugging Face comes out again, what a run wrote is listed, checked, compared and thinned.

The oracles are safetensors, transformers and torch.
"""

import json
import shutil
import subprocess

import pytest
import small_run
import torch
from conftest import BINARY
from safetensors.torch import load_file, save_file

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 101,
    "max_position_embeddings": 64, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
}


def logits(directory, **options):
    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True, **options)
    assert not loading["missing_keys"] and not loading["unexpected_keys"] and not loading["mismatched_keys"]
    with torch.no_grad():
        return model(torch.arange(20).reshape(2, 10)).logits


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A directory that transformers made from a config.json written by hand: random weights, a tokenizer file."""
    from transformers import AutoConfig, AutoModelForCausalLM

    directory = tmp_path_factory.mktemp("llama") / "hf"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).save_pretrained(directory)
    (directory / "tokenizer.json").write_text('{"version": "1.0"}')
    return directory


@pytest.fixture(scope="module")
def checkpoint(llama, tmp_path_factory):
    """The same model as a checkpoint, which a test must not change."""
    directory = tmp_path_factory.mktemp("checkpoint") / "c"
    subprocess.run([BINARY, "ckpt", "convert", llama, "--to", "trireme", directory], check=True, capture_output=True)
    return directory


@pytest.fixture
def copy(checkpoint, tmp_path):
    return shutil.copytree(checkpoint, tmp_path / "copy")


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


def test_there_and_back(trireme, llama, checkpoint, tmp_path):
    reference = load_file(llama / "model.safetensors")
    stored = load_file(checkpoint / "model.safetensors")
    assert stored.keys() == reference.keys()
    assert all(torch.equal(stored[name], reference[name]) for name in reference)
    assert trireme("ckpt", "verify", checkpoint).stdout.count("sound") == 1

    out = tmp_path / "out"
    assert trireme("ckpt", "convert", checkpoint, "--to", "hf", out).stdout.strip() == str(out)
    assert (out / "config.json").read_bytes() == (llama / "config.json").read_bytes()
    assert (out / "tokenizer.json").read_bytes() == (llama / "tokenizer.json").read_bytes()
    assert torch.equal(logits(out), logits(llama))
    assert trireme("ckpt", "diff", llama, out).stdout == ""
    message = trireme("ckpt", "convert", checkpoint, "--to", "hf", out, code=2).stderr
    assert str(out) in message and "exists" in message


def test_many_files(trireme, llama, tmp_path):
    """Shards as transformers writes them are read, and ours are read by transformers."""
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(llama).save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    trireme("ckpt", "diff", tmp_path / "shards", llama)
    trireme("ckpt", "convert", tmp_path / "shards", "--to", "hf", tmp_path / "out", "--shard-bytes", 20_000)
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 2 and files == {f.name for f in (tmp_path / "out").glob("*.safetensors")}
    assert index["metadata"]["total_size"] == sum(
        t.numel() * 4 for t in load_file(llama / "model.safetensors").values())
    assert torch.equal(logits(tmp_path / "out"), logits(llama))


@pytest.mark.parametrize("name, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp64", torch.float64)])
def test_other_types(trireme, llama, checkpoint, tmp_path, name, dtype):
    trireme("ckpt", "convert", checkpoint, "--to", "hf", tmp_path / "out", "--dtype", name)
    found = load_file(tmp_path / "out/model.safetensors")
    for key, tensor in load_file(llama / "model.safetensors").items():
        assert torch.equal(found[key], tensor.to(dtype)), key
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == str(dtype).removeprefix("torch.")
    assert logits(tmp_path / "out", dtype="auto").dtype == dtype


def test_show(trireme, llama, tmp_path):
    reference = load_file(llama / "model.safetensors")
    reference["model.norm.weight"][3] = float("nan")
    reference["model.norm.weight"][5] = float("inf")
    reference['odd "name"\n/ключ'] = torch.tensor(7, dtype=torch.int64)
    save_file(reference, tmp_path / "m.safetensors")
    shown = json.loads(trireme("ckpt", "show", tmp_path / "m.safetensors", "--json").stdout)["tensors"]
    assert [t["name"] for t in shown] == sorted(reference, key=lambda name: name.encode())
    for entry in shown:
        tensor = reference[entry["name"]]
        finite = tensor[tensor.isfinite()].double()
        assert entry["shape"] == list(tensor.shape)
        assert entry["dtype"] == ("fp32" if tensor.dtype == torch.float32 else "int64")
        assert entry["non_finite"] == pytest.approx(1 - finite.numel() / tensor.numel(), abs=1e-15)
        # Both sums are in fp64 over at most 4,848 numbers.
        assert entry["mean"] == pytest.approx(finite.mean().item(), abs=1e-15, rel=1e-12)
        assert entry["std"] == pytest.approx(finite.std(correction=0).item(), abs=1e-15, rel=1e-12)
    table = trireme("ckpt", "show", tmp_path / "m.safetensors").stdout
    assert "6.25%" in table and "name\"\\x0a/" in table
    assert len(trireme("ckpt", "show", tmp_path / "m.safetensors", "--quick").stdout.splitlines()) < len(reference) + 5


def test_damage_is_named(trireme, copy, tmp_path):
    file = copy / "model.safetensors"
    header = json.loads(file.read_bytes()[8:8 + int.from_bytes(file.read_bytes()[:8], "little")])
    start = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    name = "model.layers.1.mlp.up_proj.weight"
    flip(file, start + header[name]["data_offsets"][0] + 5)
    done = trireme("ckpt", "verify", copy, code=3)
    assert name in done.stdout and "model.safetensors" in done.stdout and "1 of 1" in done.stderr
    verdict = json.loads(trireme("ckpt", "verify", copy, "--json", code=3).stdout)
    assert verdict["sound"] is False and name in verdict["checkpoints"][0]["problems"][0]
    # Nothing that reads it goes on, and nothing is left of what it began.
    assert name in trireme("ckpt", "show", copy, code=1).stderr
    assert name in trireme("ckpt", "convert", copy, "--to", "hf", tmp_path / "out", code=1).stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy"]


@pytest.mark.parametrize("harm", ["header", "manifest", "truncated", "emptied", "missing", "foreign", "no manifest",
                                  "config"])
def test_verify_finds(trireme, copy, harm):
    file = copy / "model.safetensors"
    data = file.read_bytes()
    if harm == "header":
        flip(file, 30)
    elif harm == "manifest":
        flip(copy / "manifest.json", 300)
    elif harm == "truncated":
        file.write_bytes(data[:-1])
    elif harm == "emptied":
        file.write_bytes(b"")
    elif harm == "missing":
        file.unlink()
    elif harm == "foreign":
        tensors = load_file(file)
        tensors["model.norm.weight"] += 1
        save_file(tensors, file, {"format": "pt"})
    elif harm == "no manifest":
        (copy / "manifest.json").unlink()
        copy = copy.rename(copy.parent / "step-00000001")
    else:
        flip(copy / "config.json", 10)
    done = trireme("ckpt", "verify", copy, code=3)
    assert "damaged: " in done.stdout and str(copy) in done.stdout
    assert 1 <= len(done.stderr.strip().splitlines()) <= 3
    if harm in ("header", "truncated", "emptied", "missing", "foreign"):
        assert any(name in done.stdout for name in load_file_names(data)), done.stdout


def load_file_names(data):
    names = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return [name for name in names if name != "__metadata__"]


def test_diff(trireme, llama, tmp_path):
    tensors = load_file(llama / "model.safetensors")
    tensors["model.norm.weight"][4] += 0.25
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:100].clone()
    tensors["extra"] = tensors.pop("model.layers.0.mlp.up_proj.weight")
    save_file(tensors, tmp_path / "m.safetensors")
    done = trireme("ckpt", "diff", llama, tmp_path / "m.safetensors", code=3)
    assert "4 tensors differ" in done.stderr
    found = json.loads(trireme("ckpt", "diff", llama, tmp_path / "m.safetensors", "--json", code=3).stdout)
    assert found["equal"] is False
    by_name = {d["name"]: d for d in found["differences"]}
    assert by_name["model.norm.weight"]["differing"] == 1 and by_name["model.norm.weight"]["max_abs"] == 0.25
    # The reference's norm is over 32 weights, of which one is 1.25.
    assert by_name["model.norm.weight"]["relative"] == pytest.approx(0.25 / (31 + 1.25**2) ** 0.5, rel=1e-12)
    assert (by_name["lm_head.weight"]["a"], by_name["lm_head.weight"]["b"]) == ("[101, 32]", "[100, 32]")
    assert by_name["extra"]["what"] == "only in B"
    assert by_name["model.layers.0.mlp.up_proj.weight"]["what"] == "only in A"


def test_wrong_input(trireme, llama, checkpoint, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/model.safetensors").write_bytes(b"\xff" * 64)
    (tmp_path / "no-config").mkdir()
    shutil.copy(llama / "model.safetensors", tmp_path / "no-config")
    (tmp_path / "step-00000009.partial").mkdir()
    cases = [
        (["ls", "nowhere"], "nowhere does not exist"),
        (["ls", checkpoint], "is no run"),
        (["show", "nowhere"], "expected a run"),
        (["show", "step-00000009.partial"], "is not committed"),
        (["show", "bad"], "header claims 18446744073709551615 bytes"),
        (["convert", "no-config", "--to", "hf", "out"], "config.json"),
        (["convert", llama, "--to", "trireme", "out", "--dtype", "bf16"], "no effect"),
        (["convert", llama, "--to", "gguf", "out"], "gguf"),
        (["convert", llama, "--to", "hf", "bad/model.safetensors/out"], "bad/model.safetensors"),
        (["prune", tmp_path, "--keep", 0], "keep"),
        (["prune", tmp_path], "keep"),
        ([], "a verb is missing"),
    ]
    for arguments, reason in cases:
        done = trireme("ckpt", *arguments, code=None)
        assert done.returncode == 2, (arguments, done)
        assert reason in done.stderr, (arguments, done.stderr)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Fifty steps by two ranks over which weights and moments are cut; checkpoints at 30, 40, 50."""
    folder = tmp_path_factory.mktemp("run")
    recipe = small_run.write(folder)
    subprocess.run([BINARY, "train", recipe, "run.dir=run", "layout.shard=2"],
                   cwd=folder, check=True, capture_output=True)
    return folder / "run"


def test_of_a_run(trireme, run, tmp_path):
    listed = json.loads(trireme("ckpt", "ls", run, "--json").stdout)["checkpoints"]
    assert [(c["step"], c["state"], c["samples"]) for c in listed] == [
        (step, "committed", 4 * step) for step in (50, 40, 30)]
    assert "step-00000040" in trireme("ckpt", "ls", run / "checkpoints").stdout
    assert trireme("ckpt", "verify", run).stdout.count("sound") == 3

    shown = json.loads(trireme("ckpt", "show", run, "--json").stdout)
    assert shown["step"] == 50 and shown["samples"] == 200 and "task" in shown["recipe"]
    kinds = {t["kind"] for t in shown["tensors"]}
    assert {"weight", "moment"} <= kinds and all(t["non_finite"] == 0 for t in shown["tensors"])

    # The export of cut weights is the export that transformers loads, and it holds each tensor whole.
    trireme("ckpt", "convert", run, "--to", "hf", tmp_path / "hf")
    weights = {t["name"]: t["shape"] for t in shown["tensors"] if t["kind"] == "weight"}
    exported = load_file(tmp_path / "hf/model.safetensors")
    assert {name: list(t.shape) for name, t in exported.items()} == weights
    assert logits(tmp_path / "hf").isfinite().all()
    trireme("ckpt", "diff", run, tmp_path / "hf", "--kind", "weight")
    first = trireme("ckpt", "diff", run / "checkpoints/step-00000040", run, "--kind", "weight", code=3)
    assert f"{len(weights)} tensors differ" in first.stderr


def test_prune(trireme, run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    newest = copy / "checkpoints/step-00000050"
    would = trireme("ckpt", "prune", copy, "--keep", 1, "--keep-every", 30, "--dry-run").stdout.split()
    assert would == [str(copy / "checkpoints/step-00000040")]
    # The newest is damaged: it counts for nothing, and the newest good one stays.
    flip(next(newest.glob("model*.safetensors")), -1)
    removed = trireme("ckpt", "prune", copy, "--keep", 1).stdout.split()
    assert removed == [str(copy / "checkpoints/step-00000030")]
    assert sorted(p.name for p in (copy / "checkpoints").glob("step-*")) == ["step-00000040", "step-00000050"]
    done = trireme("ckpt", "verify", copy, code=3)
    assert "1 of 2" in done.stderr and "step-00000040: sound" in done.stdout
