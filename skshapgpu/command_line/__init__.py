"""The command ``skshapgpu``: SHAP values of rows in files, and facts about model files and installations.

``arguments.py`` defines the arguments, and a module for each command computes an :class:`Answer`. This
module prints the answer, as text or as JSON. It turns an error into one line of text and an exit code: 0 for
success, 1 for failure, 2 if the command line itself is wrong, 130 after Ctrl-C. A command may have further
exit codes.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from .answers import Answer
from .arguments import UsageError, parser
from .flags import in_flags

__all__ = ["main"]

_FAILED, _WRONG_USAGE, _INTERRUPTED = 1, 2, 130

#: Errors that wrong files, data and options raise. UnsupportedModelError is a kind of RuntimeError.
_EXPECTED = (ValueError, TypeError, RuntimeError, OSError, MemoryError, ImportError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with some arguments, without the name of the program, or those of the process.

    Return the exit code: 0, 1 after an error, 2 if the arguments are wrong, or 130 if interrupted.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    in_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        args = parser().parse_args(arguments)
        with warnings.catch_warnings():
            if getattr(args, "quiet", False):
                warnings.simplefilter("ignore")
            answer: Answer = args.run(args)
        if in_json:
            _print_json(answer.facts)
        elif answer.text:
            print(answer.text)
        sys.stdout.flush()
        return answer.exit_code
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    except UsageError as error:
        print(error.usage, file=sys.stderr, end="")
        return _report(error, in_json, _WRONG_USAGE)
    except BrokenPipeError:  # the reader has closed the pipe, as "| head" does
        _close_stdout()
        return _FAILED
    except KeyboardInterrupt as interrupt:
        print("skshapgpu: interrupted", *getattr(interrupt, "__notes__", ()), sep="", file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:
        if debug or not isinstance(error, _EXPECTED):
            traceback.print_exc()
        return _report(error, in_json, _FAILED)


def _report(error: Exception, in_json: bool, exit_code: int) -> int:
    """Report an error in one line."""
    message = _message(error)
    print(f"skshapgpu: error: {message}", file=sys.stderr)
    if in_json:
        _print_json({"error": message, "type": type(error).__name__})
    return exit_code


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{os.fsdecode(error.filename)!r}: {error.strerror}"
    else:
        text = in_flags(str(error)) or type(error).__name__
    return " ".join(" ".join([text, *getattr(error, "__notes__", ())]).split())


def _print_json(facts: dict[str, Any]) -> None:
    def plain(value: Any) -> Any:  # numbers and arrays of NumPy, or other objects
        return value.tolist() if hasattr(value, "tolist") else str(value)

    print(json.dumps(facts, default=plain, ensure_ascii=False))


def _close_stdout() -> None:
    """Redirect stdout to the null device, so that Python does not flush into the closed pipe at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # stdout is not a file
