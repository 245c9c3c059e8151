//! Size limit of files set aside.

use super::store::{self, Store};
use super::{flows, ledger, options, scratch};
use crate::export::{Ending, Exporter};
use linerate_burst::{Count, Nanos};
use std::sync::Mutex;

static NOTICES: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn files_set_aside_take_a_tenth_of_the_spool() {
    let root = scratch("aside");
    let store = Store::start(|| store::Mood::Error(33));
    let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
    let mut options = options(&root, "rowbinary,rows=10,end=30", "");
    // A batch has some 1,500 bytes.
    options.ship.most = 50_000;
    options.notify = Some(|text| NOTICES.lock().unwrap().push(text));
    let mut last = Vec::new();
    for (run, kept, dropped) in [(0, 3, 5), (1, 3, 9)] {
        let mut ship = super::super::ship(&target, &options).unwrap();
        ship.write(&flows(0..80), Nanos(1)).unwrap();
        ship.finish(Ending::Complete).unwrap();
        let ledger = ledger(&ship);
        assert_eq!((ledger.total(Count::DeliverRefused), ledger.imbalances()), (80, vec![]));
        assert_eq!((ledger.total(Count::DeliverAside), ledger.total(Count::DeliverAsideDropped)), (kept, dropped));
        let names = || {
            std::fs::read_dir(ship.spool.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap())
        };
        let mut aside: Vec<String> = names().filter(|name| name.contains(".rowbinary")).collect();
        aside.sort();
        let number = |name: &String| name.split_once('-').unwrap().1.to_owned();
        let newest = ["00000005.rowbinary.refused", "00000006.rowbinary.refused", "00000007.rowbinary.refused"];
        assert_eq!(aside.iter().map(number).filter(|name| newest.contains(&&**name)).count(), 3, "{aside:?}");
        assert!(run == 0 || aside.iter().all(|name| !last.contains(name)), "the oldest are deleted");
        // A leftover of a run that lost its journal counts as well.
        std::fs::write(ship.spool.path().join("00000000000000aa-00000000.parquet.unclaimed"), vec![0; 1000]).unwrap();
        last = aside;
    }
    let notices = NOTICES.lock().unwrap();
    let gone = "-00000000.rowbinary.refused: deleted; files set aside exceed a tenth of the spool size";
    assert_eq!(notices.iter().filter(|text| text.ends_with(gone)).count(), 2, "{notices:?}");
    std::fs::remove_dir_all(root).unwrap();
}
