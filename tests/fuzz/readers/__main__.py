"""``./dev fuzz readers [TARGETS] [--seconds N] [--jobs N] [--seed S] [--cases N]``; see the package."""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import operator
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial, reduce
from typing import Any

from .run import run_target
from .targets import TARGETS
from .workers import die_with_parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev fuzz readers", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"targets: {', '.join(TARGETS)}; all of them by default")
    parser.add_argument("--seconds", type=float, default=60, help="of each target in each job")
    parser.add_argument("--jobs", type=int, default=1, help="number of jobs, each of about one processor")
    parser.add_argument("--seed", type=int, help="first seed; default: by the time")
    parser.add_argument("--cases", type=int, help="most cases of each target in each job, one for each seed")
    parser.add_argument(
        "--stricter", action="store_true", help="print what we refuse and the library accepts"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    seed = options.seed if options.seed is not None else int(time.time()) % 10**7 * 1000
    n_findings = 0
    with ExitStack() as stack:
        apply: Any = map
        if options.jobs > 1:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(options.jobs, context, initializer=die_with_parent)
            apply = stack.enter_context(pool).map
        for name in options.names or TARGETS:
            if importlib.util.find_spec(TARGETS[name].module) is None:
                print(f"{name}: skipped, as {TARGETS[name].module} is not installed")
                continue
            run = partial(run_target, name, options.seconds, options.cases, options.jobs, options.stricter)
            result = reduce(operator.add, apply(run, range(seed, seed + options.jobs)))
            print(result.summary(), flush=True)
            if options.stricter:
                print(result.refusals())
            n_findings += len(result.findings)
    sys.exit(1 if n_findings else 0)


if __name__ == "__main__":
    main()
