# Commands that people repeat. `just` lists them; each works without `just` too.

default:
    @just --list

# Everything that a change must pass.
ci:
    .ci/run

# Format, lint, and build the docs as CI does.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --quiet -- -D warnings
    RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --quiet

# All tests, or those of one crate: `just test caldera-core`.
test crate="":
    cargo test {{ if crate == "" { "--workspace" } else { "-p " + crate } }}

# Histories with faults on virtual time: `just simulate 1 1000`.
simulate first="1" last="60":
    CALDERA_SIMULATION_SEEDS={{first}}-{{last}} cargo test --release -p caldera-cli -p caldera-e2e --test simulation -- --nocapture

# A training step by PyTorch and one by MPI over two clusters, as root: needs python3-torch, python3-mpi4py and sshd.
worlds:
    cargo test -p caldera-e2e --test scenarios -- --ignored worlds

# Coverage-guided fuzzing, so many seconds a target: `just fuzz 600`. Needs a C++ compiler.
fuzz seconds="37":
    fuzz/run {{seconds}}

# Jobs on a host and three members in this process.
demo:
    cargo run --release -- demo

# The same host and members until Ctrl-C, with kubeconfigs in DIR.
sandbox dir="/tmp/caldera":
    cargo run --release -- sandbox --dir {{dir}}

# Does what the tutorial and the tasks say, on sandboxes of their own.
pages:
    cargo build --release -p caldera-cli
    .ci/run-pages target/release/caldera docs/tutorial.md docs/install.md docs/jobs.md docs/tasks/*.md

# Draws the terminals and the console of the docs anew, into docs/images.
screens:
    .ci/screens

# Writes the reference and all else that is made of the code.
reference:
    CALDERA_WRITE_DOCS=1 cargo test -p caldera-architecture --test reference
    CALDERA_WRITE_DOCS=1 cargo test -p caldera-crds --test reference
    CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib reference
    CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib monitoring
    CALDERA_WRITE_DOCS=1 cargo test -p caldera-cli --lib made_of_what_manifests_prints

# The documentation as a site, which needs mdBook 0.4: `cargo install mdbook --version 0.4.52 --locked`.
book:
    mdbook serve

# Who depends on whom: crates, modules, circles.
graph:
    cargo test -p caldera-architecture -- --nocapture

# How we answer what real systems were asked: `<suite> <area>: P of N`.
parity:
    cargo test -p caldera-crds --test vectors -- --nocapture
    cargo test -p embedded-apiserver --test conformance -- --nocapture
    cargo test -p caldera-sandbox --test transcripts -- --nocapture

# Benchmarks of the decisions: `just bench queue`.
bench name:
    cargo bench -p caldera-core --bench {{name}}

# What the binary is made of, as CycloneDX: `just sbom > sbom.cdx.json`.
sbom target="x86_64-unknown-linux-gnu":
    @cargo run --quiet --locked -p caldera-architecture --bin sbom -- {{target}}

# Licences, advisories, duplicates and sources of dependencies.
deny:
    cargo deny check
