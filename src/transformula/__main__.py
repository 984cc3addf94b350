"""``python -m transformula``: the command line."""

from transformula.cli import main

if __name__ == "__main__":
    main()
