//! The helper of `linerate-burst` under loom, which tries every interleaving of two threads that the memory model
//! allows.
//! `scripts/loom` runs this; no other build includes it.

#[path = "../src/helper.rs"]
#[allow(dead_code)]
mod helper;

/// Replaces the crate's `threads`. One look is as good as many: loom runs the other side between two of them.
mod threads {
    pub use loom::cell::UnsafeCell as HandoffCell;
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
        // Expected in every interleaving.
        if !text.is_some_and(|text| text.starts_with("the helping thread panicked")) {
            tell(panic);
        }
    }));
    work_is_done_once_and_not_touched_afterwards();
    a_panic_of_the_caller_leaves_no_work_running();
    a_panic_of_the_worker_comes_back();
    println!("work lent to a second thread is returned in every interleaving");
}

/// Runs `model` with a worker thread, in every interleaving of both.
fn with_helper(run: impl Fn(&mut Helper) + Send + Sync + 'static) {
    loom::model(move || {
        let (mut helper, worker) = Helper::new();
        let thread = loom::thread::spawn(|| worker.work());
        run(&mut helper);
        drop(helper);
        thread.join().unwrap();
    });
}

/// The lent value, which loom watches: unordered access by two threads is an error.
struct HandoffCell(UnsafeCell<u32>);

// SAFETY: only [`Helper::join`] hands it over, whose contract is under test here.
unsafe impl Sync for HandoffCell {}

impl HandoffCell {
    fn add(&self, number: u32) {
        // SAFETY: loom reports an error if another thread accesses it.
        self.0.with_mut(|value| unsafe { *value += number });
    }
}

fn work_is_done_once_and_not_touched_afterwards() {
    with_helper(|helper| {
        for _ in 0..2 {
            let (here, there) = (HandoffCell(UnsafeCell::new(0)), HandoffCell(UnsafeCell::new(0)));
            helper.join(|| here.add(1), &mut || there.add(1));
            there.add(1);
            assert_eq!((here.0.into_inner(), there.0.into_inner()), (1, 2));
        }
    });
}

fn a_panic_of_the_caller_leaves_no_work_running() {
    with_helper(|helper| {
        let there = HandoffCell(UnsafeCell::new(0));
        let call = || helper.join(|| std::panic::resume_unwind(Box::new(())), &mut || there.add(1));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        there.add(1);
        helper.join(|| (), &mut || there.add(1));
        assert!((2..=3).contains(&there.0.into_inner()));
    });
}

fn a_panic_of_the_worker_comes_back() {
    with_helper(|helper| {
        let call = || helper.join(|| (), &mut || std::panic::resume_unwind(Box::new(())));
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    });
}
