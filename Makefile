# Each target creates the virtual environments that it needs.

PYTHON ?= python3
ON_PATH := PYTHONPATH=.:frontends:runtime:tests$(if $(PYTHONPATH),:$(PYTHONPATH))
CACHE := $(CURDIR)/.cache
# Markers of the tests that each target runs.
TESTS := not slow and not gpu
test-all: TESTS := not gpu
test: TESTS := not slow and not gpu and not variation
test-variations: TESTS := variation and not slow and not gpu
# Neighboring tests share compiled modules; an idle worker takes tests of the other.
SIDE_BY_SIDE := -n 2 --dist worksteal
.DEFAULT_GOAL := help
# Tests start many interpreters: without bytecode each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# setuptools warns of every editable install
QUIET := PYTHONWARNINGS=ignore
.PHONY: help demo docs pictures test test-variations test-all test-3.6 test-inductor test-viewers test-hta test-engines test-cupy test-numba test-cute test-newest gpu lint types mypy pyright bench bench-ranks bench-gpu peers fuzz clean

help:  ## list the targets
	@grep -hE '^[a-z0-9.-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9.-]+):.*## /  make \1\t/' | expand -t 24

# A stamp file is newer than the files its venv was made from.
.venv/.base: pyproject.toml setup.py $(wildcard kscope/native/*.[ch])
	@.ci/venv .venv $(PYTHON)
	$(QUIET) .venv/bin/pip install -q -e .
	@touch $@

.venv/.test: .venv/.base .ci/test.txt
	.venv/bin/pip install -q -r .ci/test.txt "triton==3.9.0"
	@touch $@

.venv/.torch: .venv/.test
	.venv/bin/pip install -q "torch==2.13.0"
	@touch $@

.venv/.cupy: .venv/.test .ci/cupy.txt
	.venv/bin/pip install -q -r .ci/cupy.txt
	@touch $@

.venv-numba/.test: pyproject.toml .ci/numba.txt
	@.ci/venv .venv-numba $(PYTHON)
	$(QUIET) .venv-numba/bin/pip install -q -e . -r .ci/numba.txt
	@touch $@

.venv36/.test: pyproject.toml .ci/test.txt
	@.ci/venv .venv36 $(PYTHON)
	$(QUIET) .venv36/bin/pip install -q -e . -r .ci/test.txt "triton==3.6.0"
	@touch $@

# The newest release of every DSL, in one environment.
.venv-newest/.test: pyproject.toml .ci/test.txt
	@.ci/venv .venv-newest $(PYTHON)
	$(QUIET) .venv-newest/bin/pip install -q -e '.[dev,triton,cute,numba,cupy,core]' -r .ci/test.txt
	@touch $@

.venv-cute/.test: pyproject.toml
	@.ci/venv .venv-cute $(PYTHON)
	$(QUIET) .venv-cute/bin/pip install -q -e . pytest pytest-xdist hypothesis "nvidia-cutlass-dsl==4.8.1" \
	    "apache-tvm-ffi==0.1.15.post2" "nvidia-cuda-nvdisasm==13.5.37"
	@touch $@

# Viewers of exported files: llnl-hatchet needs an older pandas than the tests.
.venv-viewers/.test:
	@.ci/venv .venv-viewers $(PYTHON)
	.venv-viewers/bin/pip install -q llnl-hatchet "triton==3.9.0"
	@touch $@

# Holistic Trace Analysis, which reads torch.profiler's files.
.venv-hta/.test:
	@.ci/venv .venv-hta $(PYTHON)
	.venv-hta/bin/pip install -q "holistictraceanalysis==0.5.0"
	@touch $@

# Engines that read the records of all ranks.
.venv-engines/.test: pyproject.toml
	@.ci/venv .venv-engines $(PYTHON)
	$(QUIET) .venv-engines/bin/pip install -q -e . "duckdb==2.0.1" "dask[dataframe]==2026.8.0" "ray[data]==2.60.0" "pyspark==4.3.0"
	@touch $@

# Other packages that write timelines, for the benchmark.
.venv-peers/.test:
	@.ci/venv .venv-peers $(PYTHON)
	.venv-peers/bin/pip install -q "perfetto==0.59.1" "tg4perfetto==0.0.6" "viztracer==1.1.1"
	@touch $@

$(CACHE)/speedscope:
	mkdir -p $@
	cd $@ && npm pack --silent speedscope@1.25.0 && tar xzf speedscope-1.25.0.tgz

.venv-docs/.made: .ci/docs.txt
	@.ci/venv .venv-docs $(PYTHON)
	.venv-docs/bin/pip install -q -r .ci/docs.txt
	@touch $@

# On a GPU the demo needs Triton, which launches kernels through PyTorch.
.venv/.demo: .venv/.base
	$(if $(wildcard /dev/nvidia0),$(QUIET) .venv/bin/pip install -q -e '.[triton]' "torch==2.13.0",)
	@touch $@

demo: .venv/.demo  ## record and show a kernel: on the GPU if there is one, else simulated
	.venv/bin/kscope demo

# The site's pages lie side by side as in the repository, so that a link leads to the same place in both.
docs: .venv-docs/.made  ## the documentation site in .cache/site, with strict links
	rm -rf $(CACHE)/docs && mkdir -p $(CACHE)/docs
	ln -s $(addprefix $(CURDIR)/,README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples) $(CACHE)/docs
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet --clean

pictures: .venv/.test  ## renew what is computed on the pages, and the screenshots (in IMAGES=FOLDER); needs chromium
	$(ON_PATH) .venv/bin/python docs/pictures.py
	$(ON_PATH) .venv/bin/python docs/screenshots.py $(IMAGES)

test: .venv/.test  ## the fast set, no GPU needed
	TRITON_CACHE_DIR=$(CACHE)/triton-3.9 .venv/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" tests

test-variations: .venv/.test  ## further variations of fast tests; those of CuPy: make test-cupy
	TRITON_CACHE_DIR=$(CACHE)/triton-3.9 .venv/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" --ignore tests/unit/cupy tests

test-all: .venv/.test test-inductor test-3.6 test-cupy test-numba test-cute  ## all tests without a GPU, thoroughly, with Triton 3.9 and 3.6
	TRITON_CACHE_DIR=$(CACHE)/triton-3.9 HYPOTHESIS_PROFILE=thorough .venv/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" tests

test-3.6: .venv36/.test  ## tests of Triton, with the oldest supported release
	TRITON_CACHE_DIR=$(CACHE)/triton-3.6 .venv36/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" -k "triton or gluon" \
	    tests/unit/triton tests/contract/test_contract.py

test-inductor: .venv/.torch  ## tests of torch.compile
	TRITON_CACHE_DIR=$(CACHE)/triton-3.9 .venv/bin/python -m pytest -m "$(TESTS)" -k "inductor or interpret" \
	    tests/unit/triton/test_inductor.py tests/unit/triton/test_device.py tests/unit/test_examples.py

test-viewers: .venv/.test .venv-viewers/.test $(CACHE)/speedscope  ## open exported files in other tools
	KSCOPE_PROTON_VIEWER=.venv-viewers/bin/proton-viewer KSCOPE_SPEEDSCOPE=$(CACHE)/speedscope/package/dist/release \
		.venv/bin/python -m pytest tests/viewers

test-hta: .venv/.test .venv-hta/.test  ## open merged files in Holistic Trace Analysis
	KSCOPE_HTA=.venv-hta/bin/python .venv/bin/python -m pytest tests/viewers/test_hta.py

test-engines: .venv/.test .venv-engines/.test  ## read the records of ranks with DuckDB, Dask, Ray and Spark
	KSCOPE_ENGINES=$(CURDIR)/.venv-engines/bin/python .venv/bin/python -m pytest tests/viewers/test_engines.py

test-cupy: .venv/.cupy  ## tests of CuPy, NVRTC and cuda.core
	.venv/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" -k "cupy or nvrtc or doctor" tests/unit/cupy \
	    tests/unit/cuda/test_nvrtc.py tests/unit/test_doctor.py tests/contract/test_contract.py tests/unit/test_examples*.py

test-numba: .venv-numba/.test  ## tests of Numba
	.venv-numba/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" -k "numba or doctor" tests/unit/numba \
	    tests/unit/test_doctor.py tests/contract/test_contract.py tests/unit/test_examples*.py tests/unit/test_bench_kernels.py

test-cute: .venv-cute/.test  ## tests of CuTe DSL
	.venv-cute/bin/python -m pytest $(SIDE_BY_SIDE) -m "$(TESTS)" tests/unit/cute tests/contract/test_contract.py \
	    tests/unit/test_examples*.py tests/unit/test_bench_kernels.py -k cute

# The compiled part for a python3 without an installed kscope. Without a C compiler, numpy and Python do its work.
NATIVE := kscope/native/_native.abi3.so
INCLUDE = $(shell $(PYTHON) -c "import sysconfig; print(sysconfig.get_path('include'))")
$(NATIVE): DIGEST = $(shell LC_ALL=C; cat $(sort $(wildcard kscope/native/*.[ch])) | gzip -c | tail -c 8 | od -An -tx4 -N4 | tr -d ' ')
$(NATIVE): $(wildcard kscope/native/*.[ch])
	-$(CC) -std=c11 -O3 -ffp-contract=off -fPIC -shared -pthread -I$(INCLUDE) -DKS_DIGEST='"$(DIGEST)"' -o $@ $(filter %.c,$^)

# Side by side if pytest-xdist is installed, then one by one on each GPU what needs it to itself, and last what needs all of
# them. Exit code 5: no test selected.
JOBS ?= $(shell $(PYTHON) -c 'import os, xdist; print(min(12, os.cpu_count()))' 2>/dev/null || echo 1)
GPUS = $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
ON_GPU = $(ON_PATH) $(PYTHON) -m pytest -ra --durations=10 $(PYTEST_ARGS) tests/gpu tests/contract/test_on_gpu.py tests/unit/test_readme.py tests/unit/test_examples.py
SPREAD = $(if $(filter-out 1,$(JOBS)),-n $(1) --dist $(2))
gpu: $(NATIVE)  ## the device tests, with python3 and its packages; PYTEST_ARGS='-k two_gpus' selects, JOBS=1 runs them one by one
	@codes=; $(ON_GPU) -m "not alone and not all_gpus" $(call SPREAD,$(JOBS),worksteal); codes=$$codes$$?; \
	$(ON_GPU) -m alone $(call SPREAD,$(GPUS),loadfile); codes=$$codes$$?; \
	$(ON_GPU) -m all_gpus; codes=$$codes$$?; \
	case $$codes in 555|*[!05]*) exit 1 ;; esac

test-newest: .venv-newest/.test  ## the fast set with the newest release of every DSL
	TRITON_CACHE_DIR=$(CACHE)/triton-newest .venv-newest/bin/python -m pytest $(SIDE_BY_SIDE) -m "not slow and not gpu" tests

lint: .venv/.test  ## ruff, and the C compiler's warnings
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(CC) -std=c11 -O3 -Wall -Wextra -Werror -I$(INCLUDE) -DKS_DIGEST='""' -fsyntax-only kscope/native/*.c

types: mypy pyright  ## mypy --strict and pyright

mypy: .venv/.test
	.venv/bin/mypy

pyright: .venv/.test
	.venv/bin/pyright

bench: .venv/.test .venv-peers/.test  ## speed of decoding and exporting, compared with other packages
	$(ON_PATH) .venv/bin/python bench/host.py --peers .venv-peers/bin/python $(BENCH_ARGS)

bench-ranks: .venv/.test  ## speed of kscope ranks for 1,000 ranks, and of merging a long trace of torch.profiler
	$(ON_PATH) .venv/bin/python bench/ranks.py $(BENCH_ARGS)

bench-gpu:  ## cost of recording on a GPU, compared with other profilers; ARGS="--sections regions" or --list
	$(ON_PATH) $(PYTHON) bench/gpu.py $(ARGS)

# Headers of other profilers, for bench-gpu; this repository has no copy of them.
PEERS := $(CACHE)/peers
$(PEERS)/profiler.cuh $(PEERS)/warpscope.cuh: .venv/.base
	mkdir -p $(PEERS)
	.venv/bin/pip download -q --no-deps --dest $(PEERS) flashinfer-python==0.7.2 warpscope==0.1.0
	cd $(PEERS) && unzip -qjo flashinfer_python-*.whl '*/profiler.cuh' && unzip -qjo warpscope-*.whl '*/warpscope.cuh'
	rm -f $(PEERS)/*.whl

peers: $(PEERS)/profiler.cuh $(PEERS)/warpscope.cuh  ## download the headers of other profilers for bench-gpu

# atheris has wheels for CPython up to 3.13.
.venv-fuzz/.test: pyproject.toml
	@.ci/venv .venv-fuzz $(PYTHON)
	$(QUIET) .venv-fuzz/bin/pip install -q -e . "atheris==3.0.0"
	@touch $@

TARGET ?= capture
SECONDS ?= 60
fuzz: .venv-fuzz/.test  ## coverage-guided fuzzing of one reader: make fuzz TARGET=capture SECONDS=60
	mkdir -p $(CACHE)/fuzz/$(TARGET)
	$(ON_PATH) .venv-fuzz/bin/python tests/torture/fuzz.py $(TARGET) -max_total_time=$(SECONDS) -max_len=16384 -timeout=20 \
	    -artifact_prefix=$(CACHE)/fuzz/$(TARGET)/ $(CACHE)/fuzz/$(TARGET) tests/torture/corpus/$(TARGET)

clean:  ## venvs, caches and builds
	rm -rf .venv .venv36 .venv-numba .venv-cute .venv-viewers .venv-hta .venv-engines .venv-newest .venv-peers .venv-fuzz .venv-docs .cache build dist *.egg-info
