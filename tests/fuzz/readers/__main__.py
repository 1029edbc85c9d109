"""``./dev fuzz readers [TARGETS] [--seconds N] [--seed S] [--cases N]``; see the package."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time

from .run import Fuzzer
from .targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev fuzz readers", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"targets: {', '.join(TARGETS)}; all of them by default")
    parser.add_argument("--seconds", type=float, default=60, help="of each target")
    parser.add_argument("--seed", type=int, help="first seed; default: by the time")
    parser.add_argument("--cases", type=int, help="most cases of each target, one for each seed")
    parser.add_argument(
        "--stricter", action="store_true", help="print what we refuse and the library accepts"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    seed = options.seed if options.seed is not None else int(time.time()) % 10**7 * 1000
    n_findings = 0
    with Fuzzer() as fuzzer:
        for name in options.names or TARGETS:
            if importlib.util.find_spec(TARGETS[name].module) is None:
                print(f"{name}: skipped, as {TARGETS[name].module} is not installed")
                continue
            result = fuzzer.run(name, seed, options.seconds, options.cases)
            print(result.summary(), flush=True)
            if options.stricter:
                print(result.refusals())
            n_findings += len(result.findings)
    sys.exit(1 if n_findings else 0)


if __name__ == "__main__":
    main()
