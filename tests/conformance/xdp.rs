//! AF_XDP: the suite over it, in the driver and in generic mode, and what only it has.

use crate::backends::Veth;
use crate::checks::run;

#[test]
fn xdp_in_the_driver_with_one_queue() {
    run_on(1, "packet", "&mode=native");
}

#[test]
fn xdp_in_the_driver_with_four_queues() {
    run_on(4, "packet", "&mode=native");
}

#[test]
fn xdp_in_generic_mode_with_one_queue() {
    run_on(1, "packet", "&mode=generic");
}

#[test]
fn xdp_in_generic_mode_with_four_queues() {
    run_on(4, "packet", "&mode=generic");
}

#[test]
fn xdp_to_xdp_with_four_queues() {
    run_on(4, "xdp", "&mode=native");
}

fn run_on(queues: u32, sender: &'static str, options: &'static str) {
    if let Some(veth) = Veth::up(queues, None) {
        run(&veth.using(sender, "xdp", options));
    }
}
