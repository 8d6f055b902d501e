"""The viewer: a page that winds through a run, and what it is told."""
