"""What is wrong, why that is believed, and the rows behind it."""
