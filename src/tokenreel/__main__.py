"""`python -m tokenreel` is the `tokenreel` command."""

import sys

from tokenreel.cli.main import main

sys.exit(main())
