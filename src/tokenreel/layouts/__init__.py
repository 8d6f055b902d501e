"""The layouts a store can come in: one module each, all opened in place.

A layout module has `NAME`; `fits(path) -> str | None`, which returns None if the
folder is of this layout (whole or damaged) and otherwise the reason why not; and
`open_layout(path, options) -> Store`, which raises if it is damaged.
"""
