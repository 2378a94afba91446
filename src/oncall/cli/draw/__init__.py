"""`oncall draw`: the pictures of a recording."""
