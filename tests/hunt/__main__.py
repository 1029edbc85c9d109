"""Search for wrong numbers: random models, data and calls, checked against independently computed references.

``./dev hunt --seconds N`` runs seeds one after another; ``./dev hunt --seed S`` runs one seed and reports
everything about it. A case that kills its process or takes more than a minute is a finding, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from .pool import Pool
from .run import run
from .tally import Tally


def _fixed(entries: list[str]) -> dict[str, Any]:
    choices: dict[str, Any] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        try:
            choices[name] = json.loads(value)
        except json.JSONDecodeError:
            choices[name] = value
    return choices


def one(seed: int, fixed: dict[str, Any]) -> int:
    result = run(seed, fixed)
    print(result.description)
    print(f"checks: {result.checks}")
    for kind, texts in (("refused", result.refusals), ("FOUND", result.findings)):
        for text in texts:
            print(f"{kind}: {text}")
    if result.not_drawn:
        print(f"the library itself refuses: {result.not_drawn}")
    print(f"{result.seconds:.2f} s")
    return 1 if result.findings else 0


def many(start: int, seconds: float, jobs: int, fixed: dict[str, Any], tally: Tally) -> None:
    print(f"seeds from {start} on", flush=True)
    end = time.monotonic() + seconds
    for result in Pool(jobs, fixed).results(start, end):
        tally.add(result)
        for text in result.findings:
            print(f"seed {result.seed}: {text}\n    {result.description}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev hunt", description=__doc__)
    parser.add_argument("--seed", type=int, help="carry out this case alone")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--start", type=int, help="first seed; default: by the time")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", action="append", default=[], metavar="NAME=VALUE", help="do not draw this")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    options = parser.parse_args()
    fixed = _fixed(options.only)
    if options.seed is not None:
        sys.exit(one(options.seed, fixed))
    tally = Tally()
    start = options.start if options.start is not None else int(time.time()) % 10**7 * 1000
    try:
        many(start, options.seconds, options.jobs, fixed, tally)
    except KeyboardInterrupt:
        print("interrupted")
    print(tally.table())
    if options.json:
        options.json.write_text(json.dumps(tally.document(), indent=1) + "\n")
    sys.exit(1 if tally.findings else 0)


if __name__ == "__main__":
    main()
