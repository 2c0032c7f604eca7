# make sweep   set everything up, then measure and draw the latency sweep (10 minutes on two cores)
# make test    set everything up, then run the whole test suite; ARGS=... of the lanes are pytest's
# make test-unit, make test-emulated   its parts: what measures nothing, and real runs on namespaces and the relay
#              (make test-runs: what they do; make test-timed: how long it takes, with nothing beside it)
# make test-kernel   the tests that need netem: on this kernel where it has netem, else in User-Mode Linux (16 minutes)
# make test-docker   the tests with containers: with the Docker daemon that runs, else as root with a private one
# make gate    the built-in experiments, simulated, against results/reference/gate; ACCEPT=1 makes changes the baseline
# make test-long     soaks, random grids, kill matrices: what other lanes do, many times over (docs/reference/long-tests.md)
# make test-browser  the report of a run, and the documentation site, in headless Chromium
# make figures       redraw every committed figure from results/reference/; make check-figures compares byte by byte
# make record PAPER=dts   measure a paper's experiments again, record them in results/reference/, and redraw
# make docs    the documentation site, into build/site; reads without a network. make man rewrites the man page
# make lint    ruff, mypy --strict, one-way imports
# make image   the images of --testbed docker; make base-image-from-debian first where no registry can be reached
# make setup   only set up: Debian/Ubuntu packages where root, a virtual environment, Python packages

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: setup sweep test test-unit test-emulated test-runs test-timed test-kernel test-docker test-browser test-long \
	figures check-figures record lint gate docs man image base-image-from-debian clean

setup:
	@VENV="$(VENV)" PYTHON="$(PYTHON)" sh scripts/setup.sh

sweep: setup
	$(BIN)/wanbench run latency-sweep --set run.repeats=1
	$(BIN)/wanbench results latency-sweep --format pivot
	@ls -1 results/latency-sweep/figures/*

test: test-unit test-emulated

# JOBS=0: in one process, beside something else
JOBS ?= 2
test-unit: docs
	$(BIN)/python -m pytest tests/unit tests/simulated -n $(JOBS) --dist loadfile $(ARGS)

test-emulated: test-runs test-timed

test-runs: setup
	$(BIN)/python -m pytest tests/kernel tests/e2e -m "not timed" -n $(JOBS) --dist loadfile $(ARGS)

test-timed: setup
	@sh scripts/setup-tests.sh programs
	sh scripts/measured-tests.sh $(BIN)/python -m pytest tests/kernel tests/e2e -m timed $(ARGS)

test-kernel: setup
	@sh scripts/setup-tests.sh kernel docker
	@PYTHON="$(BIN)/python" sh scripts/test-kernel.sh $(ARGS)

# In CI a lane that cannot run fails.
test-browser: docs
	@sh scripts/setup-tests.sh browser
	WANBENCH_REQUIRE="$(if $(CI),$(or $(WANBENCH_REQUIRE),browser),$(WANBENCH_REQUIRE))" sh scripts/measured-tests.sh \
		$(BIN)/python -m pytest tests/browser $(ARGS)

# As root: containers and, where this kernel has no netem, User-Mode Linux. What it says last is committed.
test-long: docs
	@sh scripts/setup-tests.sh kernel docker programs
	sh scripts/with-dockerd.sh $(BIN)/python scripts/long_tests.py docs/reference/long-tests.md $(ARGS)

figures: setup
	$(BIN)/wanbench figures --paper all

# 5: other versions of the libraries draw other bytes, which says nothing about the figures.
check-figures: setup
	$(BIN)/wanbench figures --paper all --check || [ $$? = 5 ]

record: setup
	$(BIN)/wanbench record $(or $(PAPER),$(error which paper? make record PAPER=dts))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What is simulated repeats exactly, so once is enough. Of dts-world only speed: what it learns takes minutes.
gate: setup
	@for name in latency-sweep world4 "dts-world --only workload.name=resnet50-v100"; do \
		$(BIN)/wanbench check $$name --testbed virtual --set run.repeats=1 \
			--baseline "results/reference/gate/$${name%% *}.json" $(if $(ACCEPT),--accept) || exit; \
	done

clean: setup
	$(BIN)/wanbench clean

# A warning fails it: a reference that leads nowhere, an image that is not there, a page that no contents list.
docs: setup
	@$(BIN)/python -c 'import furo, myst_parser' 2>/dev/null || \
		$(BIN)/python -m pip install -q --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	$(BIN)/python scripts/check_site.py build/site

man: setup
	@mkdir -p build
	PYTHONPATH=.:docs/_ext $(BIN)/python -m wanbench_docs.manual >build/wanbench.1
	mv build/wanbench.1 harness/cli/wanbench.1

# BASE=... another base image, with the same minor version of Python as $(PYTHON)
image:
	@PYTHON="$(PYTHON)" BASE="$(BASE)" sh scripts/docker-image.sh

# then: make image BASE=wanbench-base
base-image-from-debian:
	@sh scripts/base-image.sh

# With the daemon that runs, else as root with a private one. In CI a lane that cannot run fails.
test-docker: setup
	@sh scripts/setup-tests.sh docker
	WANBENCH_REQUIRE="$(if $(CI),$(or $(WANBENCH_REQUIRE),docker),$(WANBENCH_REQUIRE))" sh scripts/with-dockerd.sh \
		sh scripts/measured-tests.sh $(BIN)/python -m pytest tests/docker $(ARGS)
