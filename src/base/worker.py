# The half of every Python worker that speaks to its parent: a line of JSON in, a line of JSON out and its bytes behind
# it. Stdin is the one socket for both; what is printed goes to stderr.
import json
import os
import select
import socket
import threading


class Refusal(Exception):
    """What was asked for cannot be; the text is for the user."""


def _end_with_parent(fd):
    poll = select.poll()
    poll.register(fd, 0)  # hang-up is always reported
    poll.poll()
    os._exit(1)


def serve(answer):
    channel = socket.socket(fileno=0)
    threading.Thread(target=_end_with_parent, args=(channel.fileno(),), daemon=True).start()
    for line in channel.makefile("rb"):
        payload = b""
        try:
            reply, payload = answer(json.loads(line))
        except Refusal as refusal:
            reply = {"error": str(refusal)}
        except MemoryError:
            reply = {"error": "it takes more memory than it may"}
        except RecursionError:
            reply = {"error": "it is nested too deeply"}
        except Exception as error:  # noqa: BLE001 - whatever a library throws is the answer
            reply = {"error": f"{type(error).__name__}: {error}"}
        reply["bytes"] = len(payload)
        channel.sendall(json.dumps(reply).encode("utf-8", "surrogatepass") + b"\n")
        if payload:
            channel.sendall(payload)
    os._exit(0)
