"""What the page of a build's report adds to the shared look: the colours of its bars."""

from __future__ import annotations

STYLE = (
    "rect.trained{fill:var(--edge)}rect.context{fill:var(--soft);fill-opacity:.45}"
    "rect.truncated{fill:var(--hue-1)}rect.dropped{fill:var(--hue-5)}rect.count{fill:var(--hue-0)}"
)
