# Two commands do everything on a bare Debian or Ubuntu with python3 and make: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test check format docs bench clean

demo: $(VENV)/.installed
	@$(BIN)/oncall diagnose fixtures/flight_recorder/not_entered; code=$$?; \
	if [ $$code -ne 1 ]; then echo "expected a finding (exit 1), got exit $$code" >&2; exit 1; fi

test: $(VENV)/.tested-with check

# A bare system may lack ensurepip (python3-venv); then pip is fetched with apt where that is possible.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "oncall needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "python3 has no venv here; trying: apt-get install python3-venv" >&2; \
	  { [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get install -y -q python3-venv; } \
	  && $(PYTHON) -m venv $(VENV); }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.tested-with: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.installed

check: $(VENV)/.tested-with
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oncall rules check rulebooks
	$(BIN)/oncall rules test rulebooks
	$(BIN)/pytest -n auto

format: $(VENV)/.tested-with
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed
	$(BIN)/python -m oncall.cli.reference docs/reference

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
