//! Runs the benchmarks with small sizes, so that they stay working: all bytes arrive.

#[path = "../examples/copy_speed.rs"]
mod copy_speed;
#[path = "../examples/datagram_speed.rs"]
mod datagram_speed;
#[path = "../examples/endpoint_speed.rs"]
mod endpoint_speed;

#[test]
fn the_benchmark_of_the_endpoint_runs() {
    endpoint_speed::run(2000, 1);
}

#[test]
fn the_benchmark_of_datagrams_runs() {
    datagram_speed::run(4 << 20, 2000);
}

#[test]
fn the_benchmark_of_copies_runs() {
    copy_speed::run(16 << 20);
}
