"""Configuration from files: TOML, YAML or XML, or a mapping, into a frozen dataclass.

Knows no room of the house: a room declares a dataclass and asks `load` for it. The
values are checked by pydantic, which is imported when a file is read and not before.
"""
