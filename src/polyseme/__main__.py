"""`python -m polyseme`: the command line."""

from polyseme.cli import main

if __name__ == "__main__":
    main()
