//! The helper of `linerate-burst` under loom, which tries every order of what two threads do that the memory model allows.
//! `scripts/loom` runs this; no other build knows of it.

#[path = "../src/helper.rs"]
#[allow(dead_code)]
mod helper;

/// What `helper` is made of here. Each look is as good as many: between two of them loom lets the other side run.
mod threads {
    pub use loom::cell::UnsafeCell as Lent;
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::AtomicU32;
    pub use loom::sync::{Arc, Mutex};
    pub use loom::thread::{Thread, current, park, yield_now};

    pub const LOOKS: u32 = 1;
    pub const PATIENCE: u32 = 1;
}

use helper::Helper;
use loom::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn main() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        // That one is meant, in every order.
        if !text.is_some_and(|text| text.starts_with("the helping thread panicked")) {
            tell(panic);
        }
    }));
    work_is_done_once_and_nobody_touches_it_afterwards();
    a_panic_of_the_caller_leaves_nobody_at_work();
    a_panic_of_the_worker_comes_back();
    println!("work that is lent to a second thread comes back in every order");
}

/// Runs `model` with a helper at work, in every order of what both do.
fn with_helper(run: impl Fn(&mut Helper) + Send + Sync + 'static) {
    loom::model(move || {
        let (mut helper, worker) = Helper::new();
        let thread = loom::thread::spawn(|| worker.work());
        run(&mut helper);
        drop(helper);
        thread.join().unwrap();
    });
}

/// What is lent, which loom watches: two threads at it without an order between them are an error.
struct Lent(UnsafeCell<u32>);

// SAFETY: only [`Helper::beside`] hands it over, whose promise is what is tried here.
unsafe impl Sync for Lent {}

impl Lent {
    fn add(&self, number: u32) {
        // SAFETY: loom sees to it that nobody else is here.
        self.0.with_mut(|value| unsafe { *value += number });
    }
}

fn work_is_done_once_and_nobody_touches_it_afterwards() {
    with_helper(|helper| {
        for _ in 0..2 {
            let (here, there) = (Lent(UnsafeCell::new(0)), Lent(UnsafeCell::new(0)));
            helper.beside(|| here.add(1), &mut || there.add(1));
            there.add(1);
            assert_eq!((here.0.into_inner(), there.0.into_inner()), (1, 2));
        }
    });
}

fn a_panic_of_the_caller_leaves_nobody_at_work() {
    with_helper(|helper| {
        let there = Lent(UnsafeCell::new(0));
        let call = || helper.beside(|| std::panic::resume_unwind(Box::new(())), &mut || there.add(1));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        there.add(1);
        helper.beside(|| (), &mut || there.add(1));
        assert!((2..=3).contains(&there.0.into_inner()));
    });
}

fn a_panic_of_the_worker_comes_back() {
    with_helper(|helper| {
        let call = || helper.beside(|| (), &mut || std::panic::resume_unwind(Box::new(())));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    });
}
