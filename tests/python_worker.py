"""A worker of ours as the binary starts it, asked from a test: for many questions that would each cost a process."""

import json
import socket
import subprocess
import sys

from conftest import ROOT


class Worker:
    def __init__(self, script):
        program = (ROOT / "src/base/worker.py").read_text() + "\n" + (ROOT / "src" / script).read_text()
        self.channel, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, "-I", "-c", program], stdin=theirs)
        theirs.close()
        self.replies = self.channel.makefile("rb")

    def ask(self, request):
        self.channel.sendall(json.dumps(request).encode() + b"\n")
        line = self.replies.readline()
        assert line, f"the worker ended with {self.process.wait()} at {request}"
        reply = json.loads(line)
        return reply, self.replies.read(reply["bytes"])
