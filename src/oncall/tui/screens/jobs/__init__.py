"""The jobs there are to choose from."""
