# The programs as `cargo xtask image` builds them, for those who build with Docker. The image's digest
# differs: Docker packs layers in its own way.
FROM docker.io/library/rust:1.95-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /oz
COPY . .
ENV RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs --remap-path-prefix /oz/target=/target --remap-path-prefix /usr/local/cargo=/cargo"
RUN target="$(uname -m)-unknown-linux-gnu" \
    && cargo build --release --locked --bins --target "$target" \
        --package oz-operator --package oz-webhook --package oz-broker --package oz-gate --package ozctl \
    && mkdir /out \
    && cd "target/$target/release" \
    && cp oz-operator oz-webhook oz-broker oz-gate ozctl /out/

FROM scratch
COPY --from=build /out/ /
ENV PATH=/
USER 65532:65532
CMD ["/oz-operator"]
