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
# Of 276 MB a quarter is tests of libraries and symbols of their binaries. What is imported at a
# start is compiled here, since the image may be read-only; all the rest would be as much again.
RUN cd /opt/headstart/lib/python3*/site-packages \
 && find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + \
 && find . -type d -name __pycache__ -prune -exec rm -rf {} + \
 && find . -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.h' \) -delete \
 && if command -v strip > /dev/null; then \
      find . -type f -name '*.so*' -exec strip --strip-unneeded {} + ; fi \
 && /opt/headstart/bin/python -m compileall -q \
      adapters api cli contracts controller emulator predictor simulator workers \
 && /opt/headstart/bin/python -c 'import api.gateway.__main__, api.control.__main__, \
      controller.__main__, predictor.__main__, workers.__main__, cli.__main__, \
      river.linear_model, sklearn.ensemble'

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
