# One image for every process of Faultline: `docker run faultline worker`, `… api`, `… inspector serve`, `… reconciler`,
# `… migrate --roles`. It writes only to /tmp, so it runs with a read-only root and one tmpfs there.
# What it installs is pinned by hash in the two lock files (`make lock`); the base images are named by tag.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# Before the code, so that a change of it keeps these layers. Wheels only: no third-party build code runs.
COPY requirements-build.lock requirements-runtime.lock ./
RUN python3 -m venv /build \
    && /build/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock \
    && python3 -m venv /opt/faultline \
    && /opt/faultline/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-runtime.lock

COPY pyproject.toml README.md LICENSE ./
COPY release/index_readme.py ./release/index_readme.py
COPY src ./src
# Remove pip: a running container installs nothing.
RUN /build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && /opt/faultline/bin/python -m pip install --no-deps --no-index /dist/faultline_queue-*.whl \
    && /opt/faultline/bin/python -m pip check \
    && /opt/faultline/bin/python -m pip uninstall --quiet --yes pip

FROM python:3.13-slim
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Faultline" \
      org.opencontainers.image.description="A crash-safe job queue on PostgreSQL: worker, reconciler, API and inspector" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="python:3.13-slim" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

RUN groupadd --gid 10001 faultline \
    && useradd --uid 10001 --gid 10001 --home-dir /app --no-create-home --shell /usr/sbin/nologin faultline
COPY --from=build /opt/faultline /opt/faultline

# The bytecode was compiled at installation; the root is read-only.
ENV PATH=/opt/faultline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    FAULTLINE_HEALTH_FILE=/tmp/faultline.health

# Copy or mount your application here: FAULTLINE_APP=shop.jobs:app is imported from this folder.
WORKDIR /app

# By number, so that an orchestrator can verify that it is not root.
USER 10001:10001

# API, inspector, metrics of a worker, metrics of a reconciler.
EXPOSE 8000 8001 9464 9465
STOPSIGNAL SIGTERM

# For workers and reconcilers. The API and the inspector use `faultline health api --url http://127.0.0.1:8000`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["faultline", "health", "worker"]
ENTRYPOINT ["faultline"]
CMD ["--help"]
