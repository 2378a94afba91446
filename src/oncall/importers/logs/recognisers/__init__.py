"""What lines of logs say: one module for each program, or kind of line, that is understood."""
