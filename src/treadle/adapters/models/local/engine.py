"""The inference process (M-15): loads one GGUF file into llama.cpp and answers requests from standard input, one JSON
object a line. Run as a file of its own, never imported: it knows nothing of Treadle.

Why a process and not a thread: while it loads, the library holds the interpreter's lock for seconds, which would stop
every chat and every lease; it takes the signal handlers of its process; and a fault in it would end its process.

In:  {"library", "weights", "window", "threads"} once, then {"id", "body", "schema"} or {"stop": id}.
Out: {"ready": true}, then per request the chunks of llama.cpp as they are, and {"end": id}."""

import importlib
import json
import os
import queue
import sys
import tempfile
import threading
from typing import Any, BinaryIO

BATCH = 64  # Tokens of the prompt that are read in one go: between two of them a request can be stopped


class InferenceServer:
    def __init__(self, orders: BinaryIO, out: BinaryIO) -> None:
        self._orders, self._out = orders, out
        self._requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._stopped = 0  # every request up to this number is not wanted any more

    def run(self) -> None:
        settings = json.loads(self._orders.readline())
        threading.Thread(target=self._listen, daemon=True).start()
        sys.path.append(settings["library"])
        llama = importlib.import_module("xllamacpp")
        try:
            server = load(llama, settings)
        except Exception as error:  # the library raises any type; the caller gets the reason
            return self._say({"error": {"code": 500, "message": str(error)}})
        self._say({"ready": True})
        while True:
            self._answer(llama, server, self._requests.get())

    def _listen(self) -> None:
        """Read orders at any time. At the end of the input the parent process is gone, so exit."""
        for line in self._orders:
            order = json.loads(line)
            if "stop" in order:
                self._stopped = max(self._stopped, order["stop"])
            else:
                self._requests.put(order)
        os._exit(0)

    def _answer(self, llama: Any, server: Any, request: dict[str, Any]) -> None:
        number: int = request["id"]
        body: dict[str, Any] = request["body"]

        def take(chunk: bytes) -> bool:
            self._write(chunk)
            return self._stopped >= number

        try:
            if self._stopped < number:
                if request["schema"] is not None:
                    body["grammar"] = llama.json_schema_to_grammar(request["schema"])
                server.handle_chat_completions(json.dumps(body).encode(), take)
        except Exception as error:
            self._say({"error": {"code": 400, "message": str(error)}})
        self._say({"end": number})

    def _say(self, value: dict[str, Any]) -> None:
        self._write(json.dumps(value).encode())

    def _write(self, line: bytes) -> None:
        try:
            self._out.write(line + b"\n")
            self._out.flush()
        except OSError:  # the parent process is gone
            os._exit(0)


def load(llama: Any, settings: dict[str, Any]) -> Any:
    params = llama.CommonParams()
    params.model.path = settings["weights"]
    params.n_ctx = settings["window"]
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = -1
    params.n_threads_http = 1
    params.endpoint_slots = False
    # The library insists on an HTTP server of its own, open to every page on this machine. It gets a socket in a
    # folder of ours, which is gone as soon as the model is loaded.
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        params.hostnames = [os.path.join(folder, "engine.sock")]
        return llama.Server(params)


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep the library's prints out of the answers
    InferenceServer(sys.stdin.buffer, out).run()


if __name__ == "__main__":
    main()
