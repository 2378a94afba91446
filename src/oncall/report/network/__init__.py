"""Pictures of what the network did to a collective: who waited, for which flow, at which port."""
