"""Starts llama.cpp's own HTTP server, as the package `xllamacpp` brings it, and prints its address. Ends when standard
input does. Run as a file of its own: it knows nothing of Treadle."""

import sys

import xllamacpp as llama


def main(weights: str) -> None:
    params = llama.CommonParams()
    params.model.path = weights
    params.n_ctx = 2_048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.use_jinja = True
    server = llama.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
