//! The benchmark runs small, so that it does not rot: all bytes arrive.

#[path = "../examples/endpoint_speed.rs"]
mod endpoint_speed;

#[test]
fn the_benchmark_of_the_endpoint_runs() {
    endpoint_speed::run(2000, 1);
}
