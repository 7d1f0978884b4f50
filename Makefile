# Everything from nothing: `make demo` and `make test` need Python 3.11+ and a package index, no more.
#
# torch: on Linux a plain index may deliver the CUDA build (several GB). So torch is installed first, and
# the local version "+cpu" is asked for before the plain one. Where no configured index carries that one,
# `make setup TORCH_INDEX=<address of PyTorch's CPU wheels>` adds it for this one step.

TORCH_VERSION := 2.13.0
TORCH_INDEX ?=
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
KERNELS := setup.py $(wildcard engine/kernels/*.c engine/kernels/*.h)
# The CPU kernels need a C compiler. Where there is none, the one in the wheel `ziglang` builds them.
COMPILER := $(shell command -v $(or $(CC),cc) || command -v gcc || command -v clang)
ZIG := $(CURDIR)/$(BIN)/python -m ziglang cc

EDITOR_TESTS := tests/e2e/editors
VSCODE := editors/vscode
VSIX := $(VSCODE)/dist/dlsp.vsix

.PHONY: help setup model demo test fast slow lint types format clean test-editors editors-repeat screenshots vsix
.DEFAULT_GOAL := help

help:
	@echo "make setup   the virtual environment $(VENV), with CPU torch and the development tools"
	@echo "make model   setup, and the models fetched into the user's cache"
	@echo "make demo    complete holes in the example files, through the real language server"
	@echo "make test    lint, types, fast tests, then end-to-end and model tests"
	@echo "make fast    the fast tests only        make slow    end-to-end and model tests only"
	@echo "make test-editors   real VS Code and Neovim: installs them into your cache, then drives them"
	@echo "make editors-repeat N=20   those tests N times, with one line of JSON a run"
	@echo "make vsix           the VS Code extension as $(VSIX)"
	@echo "make screenshots    the pictures of both editors in docs/, made by those tests"
	@echo "make lint | types | format | clean"

setup: $(READY)

# Remade when pyproject.toml or a kernel changes; nothing to do otherwise.
$(READY): pyproject.toml $(KERNELS)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(MAKE) --no-print-directory venv
	@$(BIN)/python -c 'import torch, sys; sys.exit(torch.__version__.split("+")[0] != "$(TORCH_VERSION)")' 2>/dev/null \
		|| $(MAKE) --no-print-directory torch
	@echo "installing dlsp and its tools"
	@$(if $(COMPILER),,echo "no C compiler found: taking ziglang"; $(PIP_INSTALL) ziglang)
	@CC='$(or $(COMPILER),$(ZIG))' $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

# Debian's python3 comes without ensurepip: then the pip of the system puts one into the environment.
.PHONY: venv
venv:
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "no Python 3.11 or newer found: install one, or name it: make PYTHON=..." >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null && $(PYTHON) -m venv $(VENV) \
		|| { $(PYTHON) -m venv --without-pip $(VENV) \
			&& $(PYTHON) -m pip --quiet --disable-pip-version-check --python $(BIN)/python install pip; } \
		|| { rm -rf $(VENV); echo "cannot make a virtual environment: install python3-venv" >&2; exit 1; }

.PHONY: torch
torch:
	@echo "installing torch $(TORCH_VERSION) (CPU)"
	@$(PIP_INSTALL) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) 'torch==$(TORCH_VERSION)+cpu' 2>/dev/null \
		|| { echo "no index here carries the CPU build by name: taking the plain one (TORCH_INDEX=... avoids this)"; \
			$(PIP_INSTALL) 'torch==$(TORCH_VERSION)'; }

model: setup
	@$(BIN)/python -m engine pull qwen2.5-coder-0.5b smollm2-135m >/dev/null

demo: model
	@$(BIN)/python -m benchmarks.demo

# One after the other, whatever -j says: the machine's cores belong to one of them at a time.
test: setup
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory fast
	@$(MAKE) --no-print-directory slow

fast: setup
	$(BIN)/python -m pytest

slow: model
	$(BIN)/python -m pytest -m "(e2e or model) and not gpu and not editors"

# Node.js with npm is needed here, and nowhere else.
vsix: $(VSIX)

$(VSIX): $(VSCODE)/package-lock.json $(wildcard $(VSCODE)/*.json $(VSCODE)/*.md $(VSCODE)/src/*.ts $(VSCODE)/media/*)
	@command -v npm >/dev/null || { echo "the VS Code extension is built with Node.js 20 or newer and npm" >&2; exit 1; }
	@cd $(VSCODE) && { cmp -s package-lock.json node_modules/.installed \
		|| { npm ci --no-audit --no-fund --silent && cp package-lock.json node_modules/.installed; }; }
	@cd $(VSCODE) && npm run --silent package

.PHONY: editors
editors: model $(VSIX)
	@cmp -s $(EDITOR_TESTS)/requirements.txt $(VENV)/.editors \
		|| { $(PIP_INSTALL) -r $(EDITOR_TESTS)/requirements.txt && cp $(EDITOR_TESTS)/requirements.txt $(VENV)/.editors; }
	@$(EDITOR_TESTS)/install.sh $(CURDIR)/$(BIN)/python

# Where nothing but the loopback exists, if the system permits that.
test-editors: editors
	$(BIN)/python -m tests.e2e.editors.offline $(BIN)/python -m pytest $(EDITOR_TESTS) -m editors

# Again and again, up to N runs of the commit that is checked out: one line each in benchmarks/results/.
N ?= 20
editors-repeat: editors
	$(BIN)/python -m tests.e2e.editors.repeat $(N)

screenshots: editors
	DLSP_SCREENSHOTS=$(CURDIR)/docs $(BIN)/python -m pytest $(EDITOR_TESTS) -m editors -k screenshot

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
