"""The chat template of a build: picked by its settings, with the date of the build.

A model's own template may write a date (`strftime_now`). It is that of the day on which the build
was begun, and it is recorded: a build that goes on tomorrow, or that is called again when the
store is finished, renders the date of its first day.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from tokenreel.builder.build_settings import BuildSettings
from tokenreel.builder.report_files import REPORT_NOTE
from tokenreel.canonical import read_canonical
from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.store.build_folder import BUILD_FOLDER, PLAN_NAME
from tokenreel.store.manifest import MANIFEST_NAME, read_manifest
from tokenreel.text.chats import ModelTemplate, Template, fitting_template, load_template
from tokenreel.text.chats.model_template import own_template
from tokenreel.text.tokenizers import Tokenizer

DATE = "template_date"
logger = logging.getLogger(__name__)


def pick_template(settings: BuildSettings, tokenizer: Tokenizer) -> Template | ModelTemplate | None:
    """Return the template of the chats; None where records are documents."""
    if not settings.is_chat:
        return None
    given, args = settings.template, settings.template_arg
    if isinstance(given, str):
        return load_template(
            given, tokenizer=settings.tokenizer, args=args, today=_date_of(settings)
        )
    if args:
        raise ConfigError(
            "template_arg without the name of a model's own template",
            actual=", ".join(args),
            remedy='name the template, or pass template="model" for that of the tokenizer',
        )
    return _fitting(settings, tokenizer) if given is None else given


def _fitting(settings: BuildSettings, tokenizer: Tokenizer) -> Template:
    """Return the built-in template that fits; say so if the tokenizer has one of its own."""
    has_own = False
    with suppress(TokenreelError, OSError):
        has_own = bool(own_template(settings.tokenizer))
    try:
        template = fitting_template(tokenizer)
    except ConfigError as error:
        if has_own:
            error = ConfigError(
                error.what,
                expected=error.expected,
                actual=error.actual,
                remedy='pass template="model" for the template of the tokenizer',
            )
        raise error from None
    if has_own:
        logger.warning(
            "chats are rendered by the template %r, though the tokenizer has one of its own: "
            'pass template="model" for that',
            template.name,
        )
    return template


def date_written(template: Template | ModelTemplate | None) -> str | None:
    """Return the date that a template may write, as it is recorded; None if it writes none."""
    has_date = isinstance(template, ModelTemplate) and template.uses_date
    return template.date.isoformat() if has_date else None  # type: ignore[union-attr]


def _date_of(settings: BuildSettings) -> date:
    said = settings.template_date
    if said is None:
        folder = usable_path(settings.out)
        begun = {} if settings.restart else _begun(folder)
        if begun.get("template_arg") != settings.template_arg:
            begun = {}  # another build, which has a date of its own
        finished = {} if settings.replace else _finished(folder)
        said = begun.get(DATE) or finished.get(DATE) or date.today().isoformat()
    try:
        return date.fromisoformat(str(said))
    except ValueError:
        raise ConfigError(
            "bad template_date", expected="a date such as 2026-07-26", actual=repr(said)
        ) from None


def _begun(folder: Path) -> Mapping[str, Any]:
    """Return the settings of the unfinished build in a folder; what is damaged is found later."""
    with suppress(TokenreelError, OSError):
        note = read_canonical(folder / BUILD_FOLDER / PLAN_NAME).get("note")
        return _settings(note)
    return {}


def _finished(folder: Path) -> Mapping[str, Any]:
    """Return the settings of the store in a folder; what is damaged is found later."""
    with suppress(TokenreelError, OSError):
        return _settings(read_manifest(folder / MANIFEST_NAME).notes.get(REPORT_NOTE))
    return {}


def _settings(note: object) -> Mapping[str, Any]:
    settings = note.get("settings") if isinstance(note, Mapping) else None
    return settings if isinstance(settings, Mapping) else {}
