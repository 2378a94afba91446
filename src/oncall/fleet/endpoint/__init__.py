"""The node's side: what `oncall node` answers to the console, request by request."""
