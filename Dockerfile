# The programs as `cargo xtask image` builds them, for those who build with Docker: `docker build .` for the image
# of oz, `docker build --target harness .` for that of the container in the pods of harness runs. The images'
# digests differ: Docker packs layers in its own way.
FROM docker.io/library/rust:1.95-bookworm AS sources
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /oz
COPY . .
RUN cargo build --locked --bin xtask
ENV RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs --remap-path-prefix /oz/target=/target --remap-path-prefix /usr/local/cargo=/cargo"

FROM sources AS build
RUN target="$(uname -m)-unknown-linux-gnu" \
    && cargo build --release --locked --bins --target "$target" \
        --package oz-operator --package oz-webhook --package oz-broker --package oz-gate --package ozctl \
    && mkdir /out \
    && cd "target/$target/release" \
    && cp oz-operator oz-webhook oz-broker oz-gate ozctl /out/
RUN target/debug/xtask notices \
        --package oz-operator --package oz-webhook --package oz-broker --package oz-gate --package ozctl \
        --output /out/NOTICES

FROM sources AS build-harness
RUN target="$(uname -m)-unknown-linux-gnu" \
    && cargo build --release --locked --bins --target "$target" \
        --package oz-harness \
    && mkdir /out \
    && cd "target/$target/release" \
    && cp oz-harness /out/
RUN target/debug/xtask notices \
        --package oz-harness \
        --output /out/NOTICES

FROM scratch AS harness
COPY --from=build-harness /out/ /
COPY LICENSE /
ENV PATH=/
USER 65532:65532
CMD ["/oz-harness"]

FROM scratch
COPY --from=build /out/ /
COPY LICENSE /
ENV PATH=/
USER 65532:65532
CMD ["/oz-operator"]
