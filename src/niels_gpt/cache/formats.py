"""The constants of contract 002; the command line overrides every one of them but the dtype."""

from __future__ import annotations

from tokenreel.dropin.caches.cache_builder import TOKEN_DTYPE

__all__ = ["TOKEN_DTYPE"]

TRAIN_TOKENS = 200_000_000
VAL_TOKENS = 5_000_000
SHARD_BYTES = 128 * 1024 * 1024
SHUFFLE_BUFFER = 10_000
VAL_FRAC = 0.10
SEED = 42

FINEWEB_ID = "HuggingFaceFW/fineweb-edu"
FINEWEB_CONFIG = "CC-MAIN-2024-10"
WIKITEXT_ID = "Salesforce/wikitext"
WIKITEXT_CONFIG = "wikitext-103-raw-v1"
DOLLY_ID = "databricks/databricks-dolly-15k"
OASST1_ID = "OpenAssistant/oasst1"
ROAM_DIRS = ("data/roam", ".roam-data")  # the second is the original project's
GUTENBERG_DIR = "data/gutenberg"
TRAINED_MODEL = "artifacts/tokenizer/spm.model"  # where the original project trains it
