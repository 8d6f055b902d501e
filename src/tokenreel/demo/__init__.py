"""The demonstration: real text, real kills, real checks. `tokenreel demo` plays it."""
