"""An incident for Perfetto: `trace` says what is shown where, and each format has a writer."""
