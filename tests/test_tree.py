"""The tree itself: folders depend one way, some never see libtorch, everything is formatted, docs name what exists."""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

SOURCES = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in (".h", ".cc"))


def modules():
    """{folder: (sees libtorch, folders it names)} from CMakeLists.txt, bottom up."""
    text = (ROOT / "CMakeLists.txt").read_text()
    found = {}
    for name, rest in re.findall(r"^trireme_module\((\w+)([^)]*)\)", text, re.M):
        words = rest.split()
        depends = []
        if "DEPENDS" in words:
            for word in words[words.index("DEPENDS") + 1 :]:
                if word == "LIBRARIES":
                    break
                depends.append(word)
        assert all(d in found for d in depends), f"{name} stands before what it depends on"
        found[name] = ("TORCH" in words, depends)
    return found


def reachable(name, table):
    seen, todo = {name}, [name]
    while todo:
        for other in table[todo.pop()][1]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def includes(path):
    return re.findall(r'^\s*#\s*include\s+([<"][^>"]+)[>"]', path.read_text(), re.M)


def test_folders_include_only_what_they_may():
    table = modules()
    wrong = []
    for path in SOURCES:
        folder = path.relative_to(ROOT / "src").parts[0]
        if folder == "main.cc":
            continue
        allowed = reachable(folder, table)
        for include in includes(path):
            first = include[1:].split("/")[0]
            if include.startswith('"') and first in table and first not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} includes {include[1:]}")
    assert not wrong, "\n".join(wrong)


def test_libtorch_stays_out_of_the_folders_without_it():
    table = modules()
    torch = re.compile(r"^[<\"](ATen|c10|torch|caffe2)/")
    wrong = [f"{p.relative_to(ROOT)} includes {i[1:]}" for p in SOURCES for i in includes(p)
             if torch.match(i) and not table.get(p.relative_to(ROOT / "src").parts[0], (True,))[0]]
    assert not wrong, "\n".join(wrong)
    for name, (sees_torch, _) in table.items():
        if not sees_torch:
            assert not any(table[d][0] for d in reachable(name, table)), f"{name} reaches a folder with libtorch"


def test_every_folder_has_a_readme():
    for name in modules():
        assert (ROOT / "src" / name / "README.md").exists(), name


def test_formatting():
    formatter = pathlib.Path(sys.executable).parent / "clang-format"
    done = subprocess.run([formatter, "--dry-run", "-Werror", *SOURCES], capture_output=True, text=True, cwd=ROOT)
    files = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format" in line})
    assert done.returncode == 0, "not as clang-format leaves it: " + ", ".join(files)


@pytest.mark.slow
def test_each_header_compiles_alone():
    """Through the real build's flags, taken from compile_commands.json of a file in the same folder."""
    import json
    import os
    build = pathlib.Path(os.environ["TRIREME_BINARY"]).parent
    commands = {pathlib.Path(c["file"]): c["command"] for c in json.loads((build / "compile_commands.json").read_text())}

    def flags_of(command):
        words, kept = iter(command.split()), []
        for word in words:
            if word in ("-include", "-MT", "-MF", "-o", "-c"):  # the precompiled header would hide what is missing
                next(words)
            elif word != "-MD":
                kept.append(word.replace('\\"', '"'))
        return kept

    def complaint(header):
        folder = ROOT / "src" / header.relative_to(ROOT / "src").parts[0]
        command = next(c for f, c in commands.items() if f.is_relative_to(folder) and "simd" not in f.parts)
        done = subprocess.run([*flags_of(command), "-fsyntax-only", "-x", "c++", "-include", header, "/dev/null"],
                              capture_output=True, text=True)
        return f"{header.relative_to(ROOT)}: {done.stderr[:300]}" if done.returncode else None

    headers = [p for p in SOURCES if p.suffix == ".h" and "simd" not in p.parts and p.is_relative_to(ROOT / "src")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [found for found in pool.map(complaint, headers) if found]
    assert not wrong, "\n".join(wrong)
