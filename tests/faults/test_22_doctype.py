"""Fault 22: XML with a DOCTYPE is refused, always; nothing is expanded or fetched."""

from __future__ import annotations

import pytest

from tokenreel.dropin import load_data_config, load_training_config
from tokenreel.errors import ConfigError
from tokenreel.feed.recipe import Recipe

DOCTYPES = {
    "plain": "<!DOCTYPE training>",
    "entity": '<!DOCTYPE training [<!ENTITY seed "7">]>',
    "bomb": "<!DOCTYPE training [<!ENTITY a 'aaaaaaaaaa'>"
    + "".join(f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefgh", "bcdefghi"))  # noqa: B905
    + "]>",
    "file": '<!DOCTYPE training [<!ENTITY seed SYSTEM "file:///etc/passwd">]>',
    "address": '<!DOCTYPE training SYSTEM "http://127.0.0.1:1/evil.dtd">',
}


@pytest.mark.parametrize("name", DOCTYPES)
@pytest.mark.parametrize(
    "read", [load_training_config, load_data_config, Recipe.read], ids=["000", "003", "recipe"]
)
def test_a_doctype_is_refused_before_anything_is_read(tmp_path, read, name):
    path = tmp_path / "config.xml"
    path.write_text(
        f'<?xml version="1.0"?>\n{DOCTYPES[name]}\n'
        "<run><training><epoch_seed>&seed;</epoch_seed></training><data></data></run>"
    )
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}, line 2: a DOCTYPE is refused, always (expected a document without one)"
    )
