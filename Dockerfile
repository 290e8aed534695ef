# syntax=docker/dockerfile:1
# docker build -t revgate .
# docker run -p 2379:2379 -v revgate-data:/data revgate

FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
# A static binary: the image needs nothing else. Naming the target keeps the flag away from build scripts and macros.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    host=$(rustc -vV | sed -n 's/^host: //p') && \
    RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --bin revgate --target "$host" && \
    install -D "${CARGO_TARGET_DIR:-target}/$host/release/revgate" /out/bin/revgate && mkdir -m 0700 /out/data

FROM scratch
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
