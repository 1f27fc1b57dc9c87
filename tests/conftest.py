"""What every Python test may use: the built binary, run with a clean environment."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(os.environ.get("TRIREME_ROOT", pathlib.Path(__file__).resolve().parent.parent))
BINARY = os.environ.get("TRIREME_BINARY", str(ROOT / "build/release/trireme"))


sys.path.insert(0, str(ROOT / "tests"))


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: runs only with ./test --long")


@pytest.fixture
def trireme(tmp_path):
    """trireme(*arguments, code=0, cwd=tmp_path) runs the binary and checks its exit code; None takes any."""

    def call(*arguments, code=0, cwd=tmp_path, **options):
        done = subprocess.run([BINARY, *map(str, arguments)], cwd=cwd, capture_output=True,
                              encoding="utf-8", errors="surrogateescape",
                              stdin=subprocess.DEVNULL, **options)
        assert code is None or done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        return done

    return call
