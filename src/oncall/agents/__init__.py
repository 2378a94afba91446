"""oncall for agents: the Model Context Protocol, read-only, with bounded and untrusted evidence."""
