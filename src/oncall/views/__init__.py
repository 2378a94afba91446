"""What there is to show: one frozen model a picture, with the query that reads it."""
