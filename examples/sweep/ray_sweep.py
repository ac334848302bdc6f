#!/usr/bin/env python3
"""Runs a sweep as Ray tasks, one per shard, and merges the shards.

    pip install ray
    python examples/sweep/ray_sweep.py --shards 8 --results results -- \\
        tlb_flush2 --designs ipi,adaptive --threads 2,16 --set costs.ipi_send=200..4000:log:8

On one machine Ray starts by itself; with --address auto the tasks go to a running cluster, where --results must be a folder
that every node sees and the program is on the PATH (or named by --shootdown). A task that dies is tried again and goes on
where it was; so does the whole sweep when this script is started again.
"""

import argparse
import pathlib
import subprocess
import sys

import ray


def run_shard(shootdown, sweep, index, shards, output):
    """Runs one shard and returns its file. Status 1 means that a design failed in some run: a result, not a reason to retry."""
    command = [shootdown, "sweep", *sweep, "--shard", f"{index}/{shards}", "--jobs", "1", "-o", output]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"shard {index}/{shards}: {done.stderr.strip()}")
    return output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shootdown", default="shootdown", help="the program")
    parser.add_argument("--address", help="a running Ray cluster; default: this machine only")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv")
    parser.add_argument("sweep", nargs=argparse.REMAINDER, help="after --: what to sweep, as for `shootdown sweep`")
    args = parser.parse_args()
    sweep = [word for word in args.sweep if word != "--"]
    if not sweep:
        parser.error("say what to sweep after --, for example: -- tlb_flush2 --threads 2,16")

    results = args.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    ray.init(address=args.address, log_to_driver=False, include_dashboard=False)
    task = ray.remote(num_cpus=1, max_retries=3)(run_shard)
    waiting = [
        task.remote(args.shootdown, sweep, index, args.shards, str(results / f"part-{index}.csv"))
        for index in range(1, args.shards + 1)
    ]
    parts = []
    while waiting:
        (done,), waiting = ray.wait(waiting)
        parts.append(ray.get(done))
        print(f"{len(parts)}/{args.shards} shards", file=sys.stderr)
    ray.shutdown()
    merged = results / f"all.{args.format}"
    merge = [args.shootdown, "sweep", "--merge", *sorted(parts), "-o", str(merged)]
    return subprocess.run(merge).returncode


if __name__ == "__main__":
    sys.exit(main())
