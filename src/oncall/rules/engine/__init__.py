"""The rule engine: facts computed, trees walked, findings weighed against each other."""
