"""The four control tokens of the chat format (contracts 001 and 002)."""

from tokenreel.text.tokenizers.specials import NGPT_SPECIALS

SYS_TOKEN = NGPT_SPECIALS["sys"]
USR_TOKEN = NGPT_SPECIALS["usr"]
ASST_TOKEN = NGPT_SPECIALS["asst"]
EOT_TOKEN = NGPT_SPECIALS["eot"]

__all__ = ["ASST_TOKEN", "EOT_TOKEN", "SYS_TOKEN", "USR_TOKEN"]
