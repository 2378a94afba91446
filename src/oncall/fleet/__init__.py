"""The nodes of a fleet: finding, reaching and querying them."""
