"""Where the command ``ddpdoctor``, and ``python -m ddpdoctor``, begins."""

import os
import signal
import sys


def main() -> None:
    """Run the command line.

    Ctrl-C is answered from the first moment on: the commands are imported when the handler is there, and what they open
    they close by handlers of their own.
    """
    signal.signal(signal.SIGINT, _leave)
    _open_what_is_closed()
    from ddpdoctor import cli

    cli.main()


def _open_what_is_closed() -> None:
    """Take ``>&-`` for ``> /dev/null``: else a file that is opened later would get the output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))


def _leave(number: int, _: object) -> None:
    """End at once: nothing is open yet, or nothing is any more."""
    os.write(2, b"ddpdoctor: ended by SIGINT\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
