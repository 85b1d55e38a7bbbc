# One image for all of Headstart's processes; which one runs is said by the command, such as
# `serve gateway`. Needs nothing of the host but this folder and a package index.
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
# What is installed: requirements-s3.lock speaks to object stores as well.
ARG LOCK=requirements.lock
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock requirements-s3.lock ./
# An environment of its own: our flat package names never meet the system's.
RUN python3 -m venv /opt/headstart \
 && /opt/headstart/bin/pip install --no-compile --require-hashes -r ${LOCK}
# What builds the wheel is pinned by the lock as well, and stays out of the image.
COPY requirements-dev.lock ./
RUN python3 -m venv /opt/build \
 && awk '/^(setuptools|wheel|packaging)==/ {keep = 1} keep {print} !/\\$/ {keep = 0}' \
      requirements-dev.lock > build.lock \
 && /opt/build/bin/pip install --require-hashes -r build.lock
COPY . .
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/headstart/bin/pip install --no-compile --no-deps --no-index /wheels/*.whl \
 && /opt/headstart/bin/pip uninstall --yes pip
# More than a third of what was installed is never used here: tests, what is needed to compile
# against, symbols (slim bases have no strip), and parts of SciPy, scikit-learn, NumPy, River and
# Pygments that nothing imports. A library that two wheels bring is kept once. Those in *.libs stay as
# they are: their wheels have stripped them, and strip puts their segments out of place. What is
# imported at a start is compiled here, since the image may be read-only; what the nightly training
# imports is not, which costs it half a second.
RUN command -v strip > /dev/null \
 || { apt-get update && apt-get install --yes --no-install-recommends binutils; } \
 || echo "no strip here: the image gets 37 MB larger"
RUN cd /opt/headstart/lib/python3*/site-packages \
 && rm -rf pip pip-* setuptools setuptools-* pkg_resources _distutils_hack distutils-precedence.pth \
 && find . -type d \( -name tests -o -name test -o -name __pycache__ \) -prune -exec rm -rf {} + \
 && find . -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.h' -o -name '*.a' \
      -o -name '*_tests.*.so' \) -delete \
 && for part in cluster datasets differentiate fftpack misc odr signal stats/_unuran \
      io/_fast_matrix_market/_fmm_core.*; do rm -rf scipy/$part; done \
 && for part in cluster datasets/data datasets/images datasets/descr gaussian_process manifold; do \
      rm -rf sklearn/$part; done \
 && rm -rf numpy/distutils numpy/_core/_simd.* \
 && find river -type f ! -name '*.py' ! -name '*.so' -size +9k -delete \
 && find pygments/lexers -type f ! -name '_*' ! -name python.py ! -name special.py ! -name text.py \
      -delete \
 && for file in numpy.libs/*; do \
      if cmp -s "$file" "scipy.libs/${file##*/}"; then ln -sf "../$file" scipy.libs/; fi; done \
 && if command -v strip > /dev/null; then \
      find . -type f -name '*.so' ! -path '*.libs/*' -exec strip --strip-unneeded {} + ; fi \
 && /opt/headstart/bin/python -m compileall -q \
      adapters api cli contracts controller emulator predictor simulator workers \
 && /opt/headstart/bin/python -c 'import ctypes, pathlib; \
      [ctypes.CDLL(str(path.resolve())) for path in pathlib.Path(".").rglob("*.so*")]' \
 && /opt/headstart/bin/python -c 'import api.gateway.__main__, api.control.__main__, \
      controller.__main__, predictor.__main__, workers.__main__, cli.__main__' \
 && /opt/headstart/bin/python -B -c 'import predictor.batch_training, predictor.backtest'

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="headstart" \
      org.opencontainers.image.description="A forecasting gateway and model scheduler in front of LocalAI" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 headstart \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/headstart --create-home \
      --shell /usr/sbin/nologin headstart
COPY --from=build /opt/headstart /opt/headstart
# Nothing is written outside /var/lib/headstart and /tmp, so the root may be read-only.
ENV PATH=/opt/headstart/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADSTART_DATA_DIR=/var/lib/headstart
WORKDIR /var/lib/headstart
USER 10001:10001
EXPOSE 8080 8090
STOPSIGNAL SIGTERM
# Asks whichever service this container runs whether it does its work.
HEALTHCHECK --interval=30s --timeout=30s --start-period=30s --retries=3 \
  CMD ["headstart", "health"]
ENTRYPOINT ["headstart"]
CMD ["--help"]
