# Every target sets up what it needs in .venv. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PEERS ?= .venv-peers
BENCH_PEERS ?= .venv-bench-peers
FRAMEWORKS ?= .venv-frameworks
NEWEST ?= .venv-newest
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs
FULL := $(VENV)/.installed-full
SOAK := $(VENV)/.installed-soak
# Four workers on two cores: many tests wait for a server, a process or a time-out.
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal --ignore tests/frameworks
# Two here: each worker imports all frameworks, which costs more than their tests.
FRAMEWORK_TESTS := bin/python -m pytest -n 2 --dist worksteal tests/frameworks
SOAK_MINUTES ?= 30
export SOAK_MINUTES
# mkdocs-material prints that it reaches its end of life in 2027: known, and not news at each build.
export NO_MKDOCS_2_WARNING := 1
# Tests start thousands of processes, and four workers import all of the tests: each would compile
# the same files again if Python were told to keep nothing of it.
unexport PYTHONDONTWRITEBYTECODE
# What `make sandbox-tests` demands: bubblewrap, podman or both.
SANDBOXES ?= bubblewrap

.DEFAULT_GOAL := help
.PHONY: help demo unit test full soak mutants check lint bench scale docs peers lines test-pythons release-check clean links
.PHONY: sandbox-tests debian-packages newest langgraph-tests langgraph-folder typescript page page-setup
.PHONY: browser page-check screenshots bench-peers

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(CORE)  ## the main job on SQLite: kill, recover, replay, serve; no keys, no network
	$(BIN)/python examples/demo.py

unit: $(DEV)  ## tests that start no process and no server, for every save
	$(PYTEST) -m "not soak and not full and not process and not slow" --no-processes tests/unit

test: browser $(DEV) $(FRAMEWORKS)/.installed debian-packages  ## all tests; of each large matrix one cell of every row and column
	$(PYTEST) -m "not soak and not full"
	$(FRAMEWORKS)/$(FRAMEWORK_TESTS) -m "not soak and not full"

# On the disk, where `make test` may take memory for temporary files.
full: export TMPDIR := $(or $(TMPDIR),/tmp)
full: browser $(FULL) $(FRAMEWORKS)/.installed debian-packages  ## all tests, matrices whole
	$(PYTEST) -m "not soak"
	$(FRAMEWORKS)/$(FRAMEWORK_TESTS) -m "not soak"

newest: $(DEV)  ## tests under the newest releases of the frameworks
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	sed 's/==.*//' tests/frameworks/requirements.txt > $(NEWEST)/requirements.txt
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --editable '.[postgres]' --group tests \
	  --requirement $(NEWEST)/requirements.txt
	$(NEWEST)/$(FRAMEWORK_TESTS) -m "not soak and not full"

langgraph-tests: langgraph-folder $(FRAMEWORKS)/.installed-langgraph-tests  ## LangGraph's own tests on a ledger, from LANGGRAPH_TESTS=folder
	cd "$(LANGGRAPH_TESTS)/.." && \
	  PYTHONPATH="$(CURDIR)/src:$(CURDIR)/tests/frameworks/langgraph" \
	  "$(abspath $(FRAMEWORKS))/bin/python" -m pytest -n 3 -p with_turnledger -p no:cacheprovider \
	  tests/test_pregel.py tests/test_pregel_async.py

sandbox-tests: $(DEV) debian-packages  ## tests in real sandboxes; fails if one of SANDBOXES does not work here
	DEMANDED_SANDBOXES="$(SANDBOXES)" $(PYTEST) tests/unit/adapters/sandboxes tests/crash/test_sandbox_kills.py

soak: $(DEV) $(SOAK)  ## long searches, SOAK_MINUTES (30) at most
	$(BIN)/python -m pytest --ignore tests/frameworks -m soak

mutants: $(DEV)  ## break each requirement, and see that the tests named for it notice
	$(BIN)/python -m tests.mutants

check: lint test  ## what CI runs: lint, types, import rules, tests, and the page built again
	@if $(CAN_BUILD_PAGE); then $(MAKE) --no-print-directory page-check; else \
	  echo "The page was not built again: that needs node 20.19 or later, and 'make page-setup'."; fi

lint: $(DEV)  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/unit/typed_project
	$(BIN)/lint-imports

bench: browser $(DEV) $(FRAMEWORKS)/.installed  ## costs, as ratios against the physical limit
	$(BIN)/python -m benchmarks
	$(FRAMEWORKS)/bin/python -m benchmarks langgraph

scale: $(DEV)  ## growth to ten million events on PostgreSQL: about 10 GB in TMPDIR, under an hour
	$(BIN)/python -m benchmarks scale

bench-peers: $(DEV) $(BENCH_PEERS)/.installed  ## what a message costs in other frameworks and here; about 10 minutes
	@$(call with_packages,command -v strace,strace,120) || true
	$(BIN)/python -m benchmarks.peers --python $(BENCH_PEERS)/bin/python

docs: $(DOCS)  ## write the generated pages, and build the site into site/, without network
	$(BIN)/python -m docs.generate
	$(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m docs.website.check site

browser:  ## the browser that tests of the page drive: found, or, as root on Debian, installed
	@if test -n "$$CHROMIUM"; then command -v "$$CHROMIUM" >/dev/null; else \
	  $(call with_packages,$(FIND_BROWSER),chromium fonts-dejavu-core,600); fi || { \
	  echo "No browser for the tests of the page: expected chromium$${CHROMIUM:+ at $$CHROMIUM}. Run 'make" \
	    "browser' as root on Debian (it installs chromium and fonts-dejavu-core, 113 MB), or give" \
	    "CHROMIUM=path." >&2; exit 1; }

page: page-setup typescript  ## build the page into adapters/web/static; needs node 20.19 or later
	cd adapters/web/ui && npm run --silent build

page-check:  ## build the page again from its sources, and compare every byte
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cd adapters/web/ui \
	  && npm exec --offline -- vite build --logLevel warn --emptyOutDir --outDir "$$folder" \
	  && diff -r "$$folder" ../static && echo "The page built again is the same, byte for byte."

screenshots: browser $(DEV)  ## the pictures of the page in docs/page
	SCREENSHOTS=docs/page $(BIN)/python -m pytest tests/page/whole/test_page_screenshots.py

page-setup: adapters/web/ui/node_modules  ## get what building the page needs, from the network

typescript: clients/typescript/node_modules  ## write the types of the HTTP API, from its document; needs node
	cd clients/typescript && { \
	  echo "// From docs/reference/openapi.json, sha256 $$(sha256sum ../../docs/reference/openapi.json | cut -c -64)"; \
	  npm run --silent generate; } > turnledger.d.ts.part && mv turnledger.d.ts.part turnledger.d.ts

peers: $(DEV) $(PEERS)/.installed  ## the same agent in other frameworks, whole and killed, on one server
	$(BIN)/python -m examples.peers.compare --python $(PEERS)/bin/python \
	  --check docs/explanation/compared-with-other-agents.md

lines:  ## lines of Python: source of each package, tests; and of the page
	@count() { find "$$@" -type f \( -name '*.py' -o -name '*.pyi' \) -exec cat {} + | wc -l; }; \
	for part in ledger projections runtime adapters tests; do \
	  printf '%-12s %6d\n' $$part "$$(count $$part)"; \
	done; \
	printf '%-12s %6d\n' source "$$(count ledger projections runtime adapters)"; \
	printf '%-12s %6d\n' page "$$(find adapters/web/ui/src -type f -exec cat {} + | wc -l)"

test-pythons: links  ## all tests on every Python at hand that is declared
	$(PYTHON) tests/pythons.py

release-check: $(DEV) debian-packages page-check  ## build, install the wheel in an empty environment, run the README
	$(BIN)/python -m pytest tests/e2e/test_wheel.py tests/e2e/test_packaging.py tests/unit/test_docs.py

clean:  ## remove .venv and all caches
	rm -rf $(VENV) $(PEERS) $(BENCH_PEERS) $(FRAMEWORKS) $(NEWEST) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# git writes symbolic links as small text files where the file system or its settings have none.
links:
	@for part in ledger projections runtime adapters; do \
	  test -d src/turnledger/$$part || { \
	    echo "src/turnledger/$$part is not a link to ../../$$part: this checkout has links as text" \
	      "files. Run 'git config core.symlinks true' and 'git checkout -- src', on a file system" \
	      "with symbolic links." >&2; exit 1; }; \
	done

# They are not ours to keep here.
langgraph-folder:
	@test -f "$(LANGGRAPH_TESTS)/test_pregel.py" || { \
	  echo "LANGGRAPH_TESTS='$(LANGGRAPH_TESTS)': expected the folder 'tests' of LangGraph's sources, of" \
	    "the version in tests/frameworks/requirements.txt, with test_pregel.py in it." >&2; exit 2; }

# with_packages(check,packages,seconds): if the check fails, and as root on Debian, install the
# packages and say so, then check again.
with_packages = { $(1); } >/dev/null 2>&1 || { \
  test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing from Debian: $(2)" \
  && timeout $(3) sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $(2)' \
    >/dev/null 2>&1 && { $(1); } >/dev/null 2>&1; }
FIND_BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome

# It never goes to the network by itself.
CAN_BUILD_PAGE = test -d adapters/web/ui/node_modules && node -e \
  'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null

# Without them the tests in a real sandbox, and those of pages with curl on them, say what is missing.
debian-packages:
	@$(call with_packages,command -v bwrap && command -v curl,bubblewrap curl,120) || true

$(CORE): pyproject.toml | links
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[http]'
	@touch $(CORE)

$(DEV): $(CORE)
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $(DEV)

$(DOCS): $(DEV)
	$(BIN)/python -m pip install --quiet --group docs
	@touch $(DOCS)

$(FULL): $(DEV)
	$(BIN)/python -m pip install --quiet --group full
	@touch $(FULL)

$(PEERS)/.installed: examples/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --requirement examples/peers/requirements.txt
	@touch $@

$(BENCH_PEERS)/.installed: benchmarks/peers_requirements.txt
	$(PYTHON) -m venv $(BENCH_PEERS)
	$(BENCH_PEERS)/bin/python -m pip install --quiet --requirement benchmarks/peers_requirements.txt
	@touch $@

$(FRAMEWORKS)/.installed: tests/frameworks/requirements.txt pyproject.toml | links
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(FRAMEWORKS)/bin/python -m pip install --quiet --editable '.[postgres]' --group tests \
	  --requirement tests/frameworks/requirements.txt
	@touch $@

$(FRAMEWORKS)/.installed-langgraph-tests: $(FRAMEWORKS)/.installed tests/frameworks/langgraph/requirements.txt
	$(FRAMEWORKS)/bin/python -m pip install --quiet \
	  --requirement tests/frameworks/langgraph/requirements.txt
	@touch $@

%/node_modules: %/package-lock.json
	cd $* && npm ci --silent --no-audit --no-fund
	@touch $@

$(SOAK): $(DEV)
	$(BIN)/python -m pip install --quiet --group soak
	@touch $(SOAK)
