"""Validate a folder of token shards and print the `--data.*` flags to train with.

The same as `tokenreel prepare`: python scripts/prepare_data.py PATH
"""

import sys

from tokenreel.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]]))
