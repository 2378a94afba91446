"""Mutated inputs for everything that reads what others wrote.

    python -m tests.fuzz                        every target, with a short budget (`make fuzz`)
    python -m tests.fuzz wire_answers --inputs 100000
    python -m tests.fuzz --guided template      the same target, guided by coverage (atheris)

A target is a function of bytes in a module of `targets/`. It must return, whatever the bytes are:
it catches the errors that its reader documents, and nothing else. Every input has 10 seconds and
2 GB in a process of its own kind, and must print nothing. One that breaks this is saved under
`found/<target>/`, and every file there is a test from then on (test_found.py).
"""
