"""A diagnosis, shown: text for the terminal, markdown for the ticket, JSON for machines."""
