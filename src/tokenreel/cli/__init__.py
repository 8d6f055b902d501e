"""The `tokenreel` command: one file per subcommand, listed in main.py."""
