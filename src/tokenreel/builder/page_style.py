"""How the page of a report looks: light and dark, on paper and on a telephone."""

from __future__ import annotations

STYLE = """
:root{--ink:#1f2328;--dim:#57606a;--page:#fff;--line:#d0d7de;--field:#f3f5f7;
--trained:#2f7d5b;--masked:#8fb8a4;--truncated:#d9a441;--dropped:#b5473c;--count:#4c78a8;
--control:#7a3fa0;--control-field:#f1e6f8;--trained-field:#e3f3ea}
@media(prefers-color-scheme:dark){:root{--ink:#e3e6ea;--dim:#9aa4af;--page:#15181c;--line:#363c44;
--field:#20252b;--trained:#4fae84;--masked:#3f5f50;--truncated:#d9a441;--dropped:#d3685d;
--count:#6f9fd0;--control:#d0a6ec;--control-field:#33213f;--trained-field:#1d3a2c}}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:var(--ink);background:var(--page)}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.2rem 0 .5rem}
h3{font-size:.9rem;font-weight:600;margin:1.3rem 0 .3rem;color:var(--dim);overflow-wrap:anywhere}
p{margin:.3rem 0;color:var(--dim)}ul{margin:.3rem 0;padding-left:1.2rem}
.scroll{overflow-x:auto}table{border-collapse:collapse}
td,th{padding:.18rem 1.1rem .18rem 0;text-align:left;vertical-align:top}
th{color:var(--dim);font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums}
table.facts td:first-child{color:var(--dim);white-space:nowrap}
code{font:.88em ui-monospace,monospace;overflow-wrap:anywhere}
details{margin:.5rem 0}summary{cursor:pointer;color:var(--dim)}
svg{display:block;margin:.3rem 0}td svg{margin:.45rem 0 0}svg.wide{width:100%}
svg text{font:12px system-ui,sans-serif;fill:var(--dim)}
rect.trained{fill:var(--trained)}rect.masked{fill:var(--masked)}
rect.truncated{fill:var(--truncated)}rect.dropped{fill:var(--dropped)}rect.count{fill:var(--count)}
.chips{font:.86rem/2 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;
background:var(--field);border:1px solid var(--line);border-radius:6px;padding:.4rem .6rem}
.chip{unicode-bidi:isolate;border-radius:3px;padding:.12em .05em;margin-right:2px;
-webkit-box-decoration-break:clone;box-decoration-break:clone}
.t{background:var(--trained-field);border-bottom:2px solid var(--trained)}
.m{color:var(--dim);border-bottom:2px dotted var(--dim)}
.c{color:var(--control);background:var(--control-field);font-weight:600;padding:.12em .4em;
border-radius:1em;border:1px solid var(--control);display:inline-block;max-width:100%;
line-height:1.3;box-sizing:border-box}
.c.t{background:var(--control);color:var(--page)}
.more{color:var(--dim);font-family:system-ui,sans-serif}
@media print{body{max-width:none}.chips{break-inside:avoid}}
"""
