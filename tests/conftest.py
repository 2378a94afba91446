"""What every test relies on."""

from __future__ import annotations

import signal

# A shell starts its background jobs with SIGINT ignored, and children inherit that: tests of
# Ctrl-C would wait for ever under `make test &`.
signal.signal(signal.SIGINT, signal.default_int_handler)
