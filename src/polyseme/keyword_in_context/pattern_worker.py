"""A process of its own that matches a pattern, so that a pattern that does not end can be stopped.

It reads lines of JSON on standard input, first the pattern and its flags, then lists of texts. It answers the first
line with an empty list, as soon as it is ready, and each list with the matches of its texts: lists of [start, end].
Nothing outside the standard library is loaded.
"""

import json
import re
import signal
import sys


def main() -> None:
    """Answer until the input ends; Ctrl-C is left to the process that waits for the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, flags = json.loads(sys.stdin.readline())
    pattern = re.compile(source, flags)
    _answer([])
    for line in sys.stdin:
        spans = [
            [match.span() for match in pattern.finditer(text) if match.end() > match.start()]
            for text in json.loads(line)
        ]
        _answer(spans)


def _answer(content: object) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
