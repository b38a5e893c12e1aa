# One image for every process of Faultline: `docker run faultline worker`, `… api`, `… inspector serve`, `… reconciler`,
# `… migrate --roles`. It writes to /tmp and nowhere else, so it runs with a read-only root and one tmpfs there.
# What it installs is pinned by hash in the two lock files (`make lock`); the base images are named by tag.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# Before the code, so that a change to it leaves these layers alone. Wheels only: nothing of others is run to install it.
COPY requirements-build.lock requirements-runtime.lock ./
RUN python3 -m venv /build \
    && /build/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock \
    && python3 -m venv /opt/faultline \
    && /opt/faultline/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-runtime.lock

COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# pip goes when it has done its work: a container that runs installs nothing.
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

# The bytecode was compiled when it was installed; there is nowhere to put more.
ENV PATH=/opt/faultline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    FAULTLINE_HEALTH_FILE=/tmp/faultline.health

# Your application goes here, or is mounted here: FAULTLINE_APP=shop.jobs:app is looked for from this folder on.
WORKDIR /app

# By number, so that an orchestrator can see that it is not root.
USER 10001:10001

# api, inspector, metrics of a worker, metrics of a reconciler.
EXPOSE 8000 8001 9464 9465
STOPSIGNAL SIGTERM

# A worker's, and a reconciler's. api and inspector have another: `faultline health api --url http://127.0.0.1:8000`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["faultline", "health", "worker"]
ENTRYPOINT ["faultline"]
CMD ["--help"]
