# syntax=docker/dockerfile:1
# docker build -t revgate .
# docker run -p 2379:2379 -v revgate-data:/data revgate

FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked && install -D target/release/revgate /out/bin/revgate && mkdir -m 0700 /out/data

FROM debian:bookworm-slim
COPY --from=build /out/bin/revgate /usr/local/bin/revgate
# A volume takes its owner and mode from here when it is first made.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
EXPOSE 2379
# SIGTERM drains: requests in flight are answered, streams are ended, everything is flushed.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/revgate"]
CMD ["serve", "--data-dir", "/data", "--listen-client-urls", "http://0.0.0.0:2379"]
