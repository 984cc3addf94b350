# Everything runs from .venv, which `make setup` builds from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO := build/demo
WEB := build/web/node_modules

.PHONY: setup web demo test fuzz lint dist docs bench cases ladder figures clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@

# From npm: KaTeX sets the formulas of the site, axe-core checks the pages in the tests. Without npm both are left out.
web: $(WEB)

$(WEB):
	npm install --silent --no-save --no-package-lock --prefix build/web katex@0.19.1 axe-core@4.14.0 \
		|| echo "nothing from npm: formulas of the site stay in TeX, and axe-core does not run" >&2

demo: setup
	$(BIN)/transformula compile "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9" \
		--on "x1..x9=-3..3" --out $(DEMO)/f2
	$(BIN)/transformula show $(DEMO)/f2
	$(BIN)/transformula eval $(DEMO)/f2 --exact \
		--at "x1=1/2,x2=1,x3=0,x4=2,x5=1,x6=1,x7=1,x8=1,x9=1"
	$(BIN)/transformula verify $(DEMO)/f2
	$(BIN)/transformula compile "sin(x1) + sin(x2)" --on "x1..x2=0..2*pi" --eps 1e-6 \
		--construction lookup --out $(DEMO)/sum
	$(BIN)/transformula compile "sin(x1) + sin(x2)" --on "x1..x2=0..2*pi" --eps 0.05 \
		--construction partition --out $(DEMO)/theorem
	$(BIN)/transformula verify $(DEMO)/sum
	$(BIN)/transformula verify $(DEMO)/theorem
	$(BIN)/transformula compile "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)" \
		--on "G=1..2, m1=1..2, m2=1..2, x1=3..4, x2=1..2, y1=3..4, y2=1..2, z1=3..4, z2=1..2" \
		--eps 1e-6 --out $(DEMO)/gravity
	$(BIN)/transformula export $(DEMO)/gravity --to onnx
	$(BIN)/transformula report $(DEMO)/gravity

test: setup web
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Every fuzzer for a share of four minutes; seeds are counted from SEED.
SEED ?= 0
fuzz: setup
	$(BIN)/python benchmarks/fuzz/run.py --seed $(SEED) --minutes 4

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A wheel and an sdist in build/dist; both are installed into empty environments and the README is followed there.
dist: setup
	$(BIN)/python -m build --outdir build/dist .
	TRANSFORMULA_DIST=build/dist $(BIN)/python -m pytest -n 2 tests/packaging tests/test_documents.py

# The site in build/site. The tutorials run in build/notebooks, where they leave their files.
docs: setup web
	mkdir -p build/notebooks
	cd build/notebooks && NO_MKDOCS_2_WARNING=1 ../../$(BIN)/mkdocs build --strict \
		--config-file ../../mkdocs.yml --site-dir build/site

bench: setup
	$(BIN)/python benchmarks/alternatives.py --json build/alternatives.json
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/runtimes.py --models build/runtimes
	$(BIN)/python benchmarks/parity.py --models build/runtimes

cases: setup
	$(BIN)/python benchmarks/cases.py
	$(MAKE) ladder

# Tokens against tolerance: about 20 minutes; levels that were measured with the same code are kept.
ladder: setup
	$(BIN)/python benchmarks/ladder.py

figures: setup
	$(BIN)/python benchmarks/error_against_tokens.py
	$(BIN)/python benchmarks/readme_picture.py
	$(BIN)/python benchmarks/screenshots.py

clean:
	rm -rf .venv build
