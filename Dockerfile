# The image as `cargo xtask image` makes it, for those who build with Docker.
FROM docker.io/library/rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /oz
COPY . .
RUN RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --bins \
        --package oz-operator --package oz-webhook --package ozctl \
        --target "$(uname -m)-unknown-linux-gnu" \
    && mkdir /out \
    && cp target/*-unknown-linux-gnu/release/oz-operator \
          target/*-unknown-linux-gnu/release/oz-webhook \
          target/*-unknown-linux-gnu/release/ozctl /out/

FROM scratch
COPY --from=build /out/ /
ENV PATH=/
USER 65532:65532
CMD ["/oz-operator"]
