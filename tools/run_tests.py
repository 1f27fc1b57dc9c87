"""Runs the C++ and Python tests side by side and closes with `N passed, N failed, N skipped`.

C++: every <folder>_test binary of the build folder. Python: every tests/test_*.py, by pytest; tests marked `slow` run
only with --long, and --fast runs what ends within a minute: the C++ tests without names that begin with Slow or Long,
and the checks of the tree.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKERS = 2
# Of what runs long where nothing has run yet, on two cores; a build folder remembers the seconds of its own runs. The
# longest begins first, so that nothing long is left alone at the end.
SECONDS = {"test_tokenizer": 100, "test_hugging_face": 100, "test_models": 55, "test_data": 43}


class Outcome:
    """Counts of one binary or file, and what to show of it."""

    def __init__(self, name):
        self.name, self.passed, self.failed, self.skipped, self.output, self.seconds = name, 0, [], [], "", 0.0


def run(outcome, command, environment):
    start = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=environment, cwd=ROOT)
    outcome.seconds = time.monotonic() - start
    outcome.output = done.stdout.decode(errors="replace")
    return done.returncode


def run_cpp(binary, patterns, options, scratch):
    outcome = Outcome(binary.name)
    chosen = "*" if not patterns or any(p in binary.name for p in patterns) else ":".join(f"*{p}*" for p in patterns)
    left_out = "*.Long*:Long*" if not options.long else ""
    if options.fast:
        left_out += ":*.Slow*:Slow*"
    report = scratch / f"{binary.name}.json"
    code = run(outcome, [binary, f"--gtest_filter={chosen}-{left_out}", f"--gtest_output=json:{report}",
                         "--gtest_brief=1"], environment_of(options, scratch, binary.name))
    if not report.exists():
        outcome.failed.append(f"{binary.name} ended with exit code {code} before its report")
        return outcome
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test["result"] == "SKIPPED":
                outcome.skipped.append(f"{name}: " + "; ".join(s.get("message", "") for s in test.get("skipped", [])))
            elif test["status"] == "RUN" and "failures" in test:
                outcome.failed.append(name)
            elif test["status"] == "RUN":
                outcome.passed += 1
    if code != 0 and not outcome.failed:
        outcome.failed.append(f"{binary.name} ended with exit code {code}")
    return outcome


def run_python(file, patterns, options, scratch):
    outcome = Outcome(file.stem)
    report = scratch / f"{file.stem}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider",
               f"--junit-xml={report}", f"--basetemp={scratch / file.stem}"]
    if not options.long:
        command += ["-m", "not slow"]
    if patterns and not any(p in file.stem for p in patterns):
        command += ["-k", " or ".join(patterns)]
    code = run(outcome, [*command, file], environment_of(options, scratch, file.stem))
    if code == 5:  # every test deselected
        return outcome
    if not report.exists():
        outcome.failed.append(f"{file.name} ended with exit code {code} before its report")
        return outcome
    for case in xml.parse(report).getroot().iter("testcase"):
        name = f"{file.stem}::{case.get('name')}"
        if case.find("skipped") is not None:
            outcome.skipped.append(f"{name}: {case.find('skipped').get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.failed.append(name)
        else:
            outcome.passed += 1
    return outcome


def longest_first(jobs, seconds):
    """Jobs in the order of what they took; one that is not known is taken for short."""
    return sorted(jobs, key=lambda job: -seconds.get(job[1].stem, 1))


def environment_of(options, scratch, name):
    home = scratch / f"{name}-tmp"
    home.mkdir(exist_ok=True)
    return {**os.environ, "TRIREME_BINARY": str(options.build / "trireme"), "TRIREME_ROOT": str(ROOT),
            "TMPDIR": str(home), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
            "TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0"}


def main():
    parser = argparse.ArgumentParser(prog="./test", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="run only tests whose binary, file or name contains one of these")
    parser.add_argument("--fast", action="store_true", help="only what ends within a minute")
    parser.add_argument("--long", action="store_true", help="the sweeps too")
    parser.add_argument("--sanitize", choices=["address", "thread"], help="build with a sanitizer; C++ tests only")
    parser.add_argument("--build", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()

    jobs = [(run_cpp, binary) for binary in sorted(options.build.glob("*_test")) if os.access(binary, os.X_OK)]
    if not options.sanitize:
        files = sorted((ROOT / "tests").glob("test_*.py"))
        jobs += [(run_python, f) for f in files if not options.fast or f.stem == "test_tree"]
    whole = not (options.patterns or options.fast or options.long)
    taken = options.build / "test_seconds.json"
    seconds = json.loads(taken.read_text()) if taken.exists() else SECONDS
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="trireme-test-") as scratch, \
            concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(kind, what, options.patterns, options, pathlib.Path(scratch))
                   for kind, what in longest_first(jobs, seconds)]
        for future in concurrent.futures.as_completed(running):
            outcome = future.result()
            outcomes.append(outcome)
            if outcome.failed:
                print(outcome.output)
            if outcome.passed or outcome.failed or outcome.skipped:
                print(f"{outcome.name}: {outcome.passed} passed, {len(outcome.failed)} failed, "
                      f"{len(outcome.skipped)} skipped, {outcome.seconds:.1f} s", flush=True)

    if whole:
        taken.write_text(json.dumps({outcome.name: round(outcome.seconds, 1) for outcome in outcomes}))
    failed = [f for o in outcomes for f in o.failed]
    skipped = [s for o in outcomes for s in o.skipped]
    passed = sum(o.passed for o in outcomes)
    for name in failed:
        print(f"FAILED {name}")
    skips = options.build / "skipped.txt"
    skips.write_text("".join(s + "\n" for s in skipped))
    if skipped:
        print(f"skipped tests and their reasons: {skips}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    sys.exit(1 if failed or passed == 0 else 0)


if __name__ == "__main__":
    main()
