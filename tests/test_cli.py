"""The command line as such: exit codes, streams, help, completion."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import BINARY, ROOT


def verbs(trireme):
    listing = trireme("--help").stdout.split("Verbs:\n")[1]
    return re.findall(r"^  ([a-z]+) ", listing, re.M)


def test_help_is_help_however_it_is_asked_for(trireme):
    assert trireme("help").stdout == trireme("--help").stdout == trireme("-h").stdout
    for verb in verbs(trireme):
        text = trireme(verb, "--help").stdout
        assert text == trireme("help", verb).stdout.split("\nKeys of recipes:\n")[0], verb
        assert f"Usage: trireme {verb}" in text
    assert trireme("help", "completion", "bash").stdout == trireme("completion", "bash", "--help").stdout


def test_every_verb_has_a_line_that_says_what_it_does(trireme):
    listing = trireme("--help").stdout
    for verb in verbs(trireme):
        assert re.search(rf"^  {verb} +\w[^\n]{{10,}}$", listing, re.M), verb
    assert {"explain", "version", "help", "completion"} <= set(verbs(trireme))


def test_version(trireme):
    line = trireme("--version").stdout
    assert re.fullmatch(r"trireme \d+\.\d+\.\d+\n", line)
    assert trireme("version").stdout.startswith(line)


@pytest.mark.parametrize("arguments, says", [
    ([], "a verb is missing"),
    (["explian"], "there is no verb 'explian'; did you mean 'explain'?"),
    (["walk"], "there is no verb 'walk'\n"),
    (["completion"], "completion: a verb is missing"),
    (["completion", "bahs"], "did you mean 'bash'?"),
    (["explain"], "explain: RECIPE is required"),
    (["explain", "r.toml", "--jsno"], "did you mean --json?"),
    (["explain", "--json=maybe", "r.toml"], "explain: "),
    (["--jsno"], ""),
    (["version", "now"], "version: The following argument was not expected: now"),
    (["help", "batchsize"], "there is no help on 'batchsize'; did you mean 'batch.size'?"),
    (["help", "version", "--markdown"], "--markdown"),
])
def test_usage_errors(trireme, arguments, says):
    done = trireme(*arguments, code=2)
    assert done.stdout == ""
    assert says in done.stderr and done.stderr.startswith("trireme: ")
    assert 1 <= done.stderr.count("\n") <= 3


def test_a_result_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w") as full:
        for arguments in (["version"], ["help"], ["--help"], ["--version"]):
            done = subprocess.run([BINARY, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 1, arguments
            assert "cannot write to stdout: No space left on device" in done.stderr


def test_a_stack_trace_only_when_asked_for(trireme):
    plain = trireme("explain", "missing.toml", code=2).stderr
    assert plain == "trireme: cannot open missing.toml: No such file or directory\n"
    assert trireme("explain", "missing.toml", code=2, env={**os.environ, "TRIREME_DEBUG": "0"}).stderr == plain
    traced = trireme("explain", "missing.toml", code=2, env={**os.environ, "TRIREME_DEBUG": "1"}).stderr
    assert traced.startswith(plain + "trireme::InputError, thrown from\n")
    assert "read_file" in traced.splitlines()[2], "the innermost frame is the one that threw"
    bare = trireme("explain", "missing.toml", code=2, env={"TRIREME_DEBUG": "1", "PATH": "/nowhere"}).stderr
    assert re.search(r"^0x[0-9a-f]+$", bare, re.M), "without addr2line there are addresses"


def test_the_page_is_current(trireme):
    page = trireme("help", "--markdown").stdout
    assert (ROOT / "docs/cli.md").read_text() == page, "run: trireme help --markdown > docs/cli.md"


COMPLETIONS = [  # the words typed so far, and what is offered for the last one
    ("trireme expl", {"explain"}),
    ("trireme completion ", {"bash", "zsh", "fish"}),
    ("trireme completion z", {"zsh"}),
    ("trireme explain --js", {"--json"}),
    ("trireme explain r.toml batch.m", {"batch.micro="}),
    ("trireme explain --json r.toml schedule.ki", {"schedule.kind="}),
    ("trireme explain recipes/code-n", {"recipes/code-nano.toml"}),
    ("trireme version --h", {"--help"}),
    ("trireme --vers", {"--version"}),
]


def test_bash_completes(trireme, tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/code-nano.toml").touch()
    (tmp_path / "script").write_text(trireme("completion", "bash").stdout)
    lines = ["source ./script", "compopt() { :; }"]  # compopt works inside a real completion only
    for typed, _ in COMPLETIONS:
        words = " ".join(f"'{w}'" for w in typed.split(" "))
        lines.append(f"COMP_WORDS=({words}); COMP_CWORD={typed.count(' ')}; COMPREPLY=(); _trireme; "
                     'echo "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    for (typed, offered), line in zip(COMPLETIONS, done.stdout.splitlines(), strict=True):
        assert set(line.split()) == offered, typed


def test_bash_knows_every_verb(trireme, tmp_path):
    (tmp_path / "script").write_text(trireme("completion", "bash").stdout)
    done = subprocess.run(["bash", "--norc", "-c", "source ./script; complete -p ./trireme; COMP_WORDS=(trireme ''); "
                           'COMP_CWORD=1; _trireme; echo "${COMPREPLY[@]}"'], cwd=tmp_path, capture_output=True, text=True)
    registered, offered = done.stdout.splitlines()
    assert registered == "complete -F _trireme ./trireme"
    assert offered.split() == verbs(trireme)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(trireme, tmp_path):
    (tmp_path / "script").write_text(trireme("completion", "fish").stdout)
    for typed, offered in COMPLETIONS:
        if "recipes/" in typed or "batch." in typed or "schedule." in typed:
            continue
        done = subprocess.run(["fish", "--no-config", "-c", f"source ./script; complete -C '{typed}'"], cwd=tmp_path,
                              capture_output=True, text=True)
        assert {line.split("\t")[0] for line in done.stdout.splitlines()} == offered, typed


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(trireme, tmp_path):
    (tmp_path / "script").write_text(trireme("completion", "zsh").stdout)
    lines = ["compdef() { }; compadd() { shift; [[ $1 == '' ]] && shift 2; print -r -- $@ }; _files() { }",
             "source ./script", "words=(trireme explain --js) CURRENT=3; _trireme",
             "words=(trireme completion '') CURRENT=3; _trireme", "words=(trireme explain r.toml ba) CURRENT=4; _trireme"]
    done = subprocess.run(["zsh", "-f", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    options, shells, keys = (line.split() for line in done.stdout.splitlines())
    assert {"--json", "--help"} <= set(options)
    assert shells == ["bash", "zsh", "fish"]
    assert "batch.size=" in keys and "task=" in keys
