"""A job watched while nobody looks: looks in, one notification for each incident out."""
