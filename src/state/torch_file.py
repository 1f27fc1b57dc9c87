# Reads files that torch.save() wrote: {"open": path} lists their tensors, {"path", "tensor", "offset", "bytes"} gives
# bytes of one. Only tensors are unpickled (weights_only): no code of the file ever runs.
import ctypes
import re
import resource
import zipfile

import torch

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16",
           torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
           torch.bool: "BOOL"}
_files = {}  # path to {name: tensor}
_contiguous = (None, None)  # the tensor that was made so last: ((path, name), copy)


def _limit_memory(path):
    """What is mapped now, what the file can rightly need, and room for one tensor's copy."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + 3 * os.path.getsize(path) + (2 << 30)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _reason(error):
    """What torch says, without its advice to trust the file."""
    text = " ".join(str(error).split())
    if code := re.search(r"unsupported (?:global: )?GLOBAL (\S+)", text, re.IGNORECASE):
        return f"it asks for {code[1]}, which is no part of a tensor and is not run"
    text = re.sub(r"^Weights only load failed.*?(trusted source\.|WeightsUnpickler error:)", "", text)
    text = re.sub(r".*WeightsUnpickler error:|Check the documentation of torch.load.*", "", text).strip()
    return f"{type(error).__name__}: {text[:200]}"


def _load(path):
    _limit_memory(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except OSError as error:
        raise Refusal(error.strerror or str(error))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise Refusal(_reason(error))
    if not isinstance(found, dict):
        raise Refusal(f"it holds a {type(found).__name__}, expected a dictionary of tensors")
    for name, tensor in found.items():
        if not isinstance(name, str):
            raise Refusal(f"a key is no text: {name!r}"[:200])
        if not isinstance(tensor, torch.Tensor):
            raise Refusal(f"{name[:100]} is a {type(tensor).__name__} and no tensor")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise Refusal(f"{name[:100]} is no plain tensor")
        if tensor.dtype not in _DTYPES:
            raise Refusal(f"{name[:100]} has elements of type {tensor.dtype}, which are not supported")
    return found


def _file(path):
    if path not in _files:
        _files[path] = _load(path)
    return _files[path]


def answer(request):
    global _contiguous
    if "open" in request:
        return {"tensors": [{"name": name, "dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape)}
                            for name, tensor in _file(request["open"]).items()]}, b""
    key = (request["path"], request["tensor"])
    if _contiguous[0] != key:
        _contiguous = (key, _file(key[0])[key[1]].detach().resolve_conj().resolve_neg().contiguous())
    tensor, begin, count = _contiguous[1], request["offset"], request["bytes"]
    if begin < 0 or count < 0 or begin + count > tensor.numel() * tensor.element_size():
        raise Refusal("these bytes are outside of the tensor")
    if count == 0:
        return {}, b""
    return {}, memoryview((ctypes.c_char * count).from_address(tensor.data_ptr() + begin)).cast("B")


serve(answer)
