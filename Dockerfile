# Images of wanbench.   make image   (both, from wheels that the host's pip downloads; the build needs no network)
#                       docker compose build   (the same, from the public package indexes if there are no wheels)
#
#   worker       Python, torch for the CPU, workloads, netprofiles and the public names of wanbench: the containers of
#                `--testbed docker`
#   controller   the worker's image, harness and its dependencies: the service `wanbench` of docker-compose.yml
#
# To add your own model, or another torch: FROM wanbench-worker, COPY it to /wanbench, and name your image in
# WANBENCH_IMAGE or in a spec's [containers].

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS packages
COPY constraints.txt scripts/docker-packages.sh build/wheel[s] /wheels/
RUN sh /wheels/docker-packages.sh numpy scikit-learn pillow

FROM packages AS more-packages
COPY pyproject.toml README.md LICENSE /source/
COPY wanbench /source/wanbench
COPY harness /source/harness
COPY workloads /source/workloads
COPY netprofiles /source/netprofiles
RUN touch /before && sh /wheels/docker-packages.sh /source && mkdir /added \
    && find /opt/wanbench -newer /before ! -type d -print0 | tar --create --null --files-from=- | tar --extract --directory /added

FROM ${BASE} AS worker
COPY --from=packages /opt/wanbench /opt/wanbench
WORKDIR /wanbench
COPY workloads workloads
COPY netprofiles netprofiles
COPY wanbench wanbench
ENV PATH=/opt/wanbench/bin:$PATH PYTHONPATH=/wanbench
USER 65532:65532
ENTRYPOINT ["python3", "-m", "wanbench.workloads.process.container"]
CMD ["--socket", "/run/wanbench/controller.sock"]

FROM worker AS controller
COPY --from=more-packages /added /
COPY scripts/docker-controller.sh /usr/local/bin/
WORKDIR /work
USER 0:0
# Otherwise the worker's /wanbench would hide the installed package, which has everything.
ENV HOME=/tmp PYTHONPATH=
ENTRYPOINT ["sh", "/usr/local/bin/docker-controller.sh"]
CMD ["--help"]
