"""The screens, each a view model, a widget and a line in the registry."""
