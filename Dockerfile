# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# The context has no .git, so the commit comes from outside: --build-arg ANNEAL_COMMIT=$(git rev-parse HEAD).
ARG ANNEAL_COMMIT
ENV ANNEAL_COMMIT=$ANNEAL_COMMIT
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package anneal-cli --no-default-features \
    && scripts/image_root.sh target/release/anneal /image

# The image has no base: scripts/image_root.sh copies what the binary needs.
FROM scratch
COPY --from=build /image/ /
ENV PATH=/usr/local/bin
# Numeric, so that Kubernetes can verify that the user is not root.
USER 10001:10001
EXPOSE 50051 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["anneal", "health"]
ENTRYPOINT ["anneal"]
CMD ["server"]
