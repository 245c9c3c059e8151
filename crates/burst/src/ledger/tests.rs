//! Identities, and sums of ledgers.

use super::*;

#[test]
fn forwarded_frames_are_checked_at_both_ends() {
    let wire = |taken, handed, sent| {
        let mut ledger = Ledger::new();
        ledger.account(Stage::Receive, "a").add(Count::Received, 5).add(Count::Delivered, 5);
        let account = ledger.account(Stage::Forward, "a -> b");
        account.add(Count::ForwardReceived, taken).add(Count::Forwarded, handed);
        ledger.account(Stage::Send, "b").add(Count::SendReceived, sent).add(Count::Sent, sent);
        ledger
    };
    assert_eq!(wire(5, 5, 5).imbalances(), []);
    for (taken, handed, sent) in [(4, 4, 4), (5, 5, 4), (5, 4, 4)] {
        assert_eq!(wire(taken, handed, sent).imbalances().len(), 1, "{taken} {handed} {sent}");
    }
    let mut both = wire(5, 5, 5);
    both.add_all(&wire(5, 5, 5));
    assert_eq!((both.total(Count::Forwarded), both.accounts().len()), (10, 3));
}

#[test]
fn inspected_frames_are_checked_in_both_directions() {
    let switch = |asked: u64, shown: u64, back: u64| {
        let mut ledger = Ledger::new();
        ledger.account(Stage::Receive, "a").add(Count::Received, 9).add(Count::Delivered, 9);
        let own = ledger.account(Stage::Switch, "");
        own.add(Count::SwitchReceived, 9)
            .add(Count::Switched, 9)
            .add(Count::SwitchCopies, 3)
            .add(Count::SwitchInspected, 6);
        let verdict = ledger.account(Stage::Verdict, "ids");
        verdict.add(Count::VerdictReceived, asked).add(Count::InlineNoBlock, 1).add(Count::InlinePassed, asked - 1);
        ledger.account(Stage::Share, "ids").add(Count::ShareReceived, shown).add(Count::Shared, shown);
        let again = ledger.account(Stage::Switch, "ids");
        again.add(Count::SwitchReceived, back).add(Count::Switched, back).add(Count::SwitchInjected, 2);
        again.add(Count::SwitchCopies, 7);
        ledger.account(Stage::Forward, "b").add(Count::ForwardReceived, 10).add(Count::Forwarded, 10);
        ledger.account(Stage::Send, "b").add(Count::SendReceived, 10).add(Count::Sent, 10);
        ledger
    };
    assert_eq!(switch(6, 5, 7).imbalances(), []);
    for (asked, shown, back) in [(5, 5, 6), (6, 6, 7), (6, 5, 6)] {
        assert_eq!(switch(asked, shown, back).imbalances().len(), 1, "{asked} {shown} {back}");
    }
}

#[test]
fn accounting_detects_a_missing_frame() {
    let mut ledger = Ledger::new();
    ledger.account(Stage::Receive, "a").add(Count::Received, 10).add(Count::Delivered, 8).add(Count::RingFull, 2);
    ledger.account(Stage::Merge, "").add(Count::MergeReceived, 8).add(Count::MergeDelivered, 8);
    ledger.account(Stage::Write, "f").add(Count::WriteReceived, 8).add(Count::Written, 8);
    assert_eq!(ledger.imbalances(), []);
    assert_eq!((ledger.lost(), ledger.losses()), (2, vec![(Count::RingFull, 2)]));

    ledger.account(Stage::Receive, "a").add(Count::Received, 1);
    let within = Imbalance::Within { stage: Stage::Receive, subject: "a".into(), frames: 1 };
    assert_eq!(ledger.imbalances(), [within]);

    ledger.account(Stage::Receive, "a").add(Count::Delivered, 1);
    let between = Imbalance::Between { from: Stage::Receive, to: Stage::Merge, delivered: 9, received: 8 };
    assert_eq!(ledger.imbalances(), [between]);
}

#[test]
fn each_of_several_consumers_receives_everything() {
    let run = |file: u64, flows: u64| {
        let mut ledger = Ledger::new();
        ledger.account(Stage::Receive, "a").add(Count::Received, 8).add(Count::Delivered, 8);
        ledger.account(Stage::Merge, "").add(Count::MergeReceived, 8).add(Count::MergeDelivered, 8);
        ledger.set_branch("capture");
        let select = ledger.account(Stage::Select, "");
        select.add(Count::SelectReceived, 8).add(Count::SelectDelivered, 5).add(Count::Filtered, 3);
        ledger.account(Stage::Write, "f").add(Count::WriteReceived, file).add(Count::Written, file);
        ledger.set_branch("flows");
        ledger.account(Stage::Select, "").add(Count::SelectReceived, 8).add(Count::SelectDelivered, 8);
        ledger.account(Stage::Meter, "").add(Count::MeterReceived, flows).add(Count::Metered, flows);
        ledger
    };
    assert_eq!(run(5, 8).imbalances(), []);
    for (file, flows) in [(8, 8), (5, 5)] {
        assert_eq!(run(file, flows).imbalances().len(), 1, "{file} {flows}");
    }
    let mut twice = Ledger::new();
    twice.add_all(&run(5, 8));
    twice.add_all(&run(5, 8));
    assert_eq!((twice.accounts().len(), twice.imbalances()), (6, vec![]));
}

#[test]
fn lost_records_are_not_lost_frames() {
    let mut ledger = Ledger::new();
    ledger.account(Stage::Write, "f").add(Count::WriteReceived, 5).add(Count::WriteFailed, 5);
    ledger.account(Stage::Export, "a").add(Count::ExportReceived, 9).add(Count::Exported, 2);
    let missing = ledger.imbalances()[0].to_string();
    assert_eq!(missing, "export a: 7 records received but neither delivered nor dropped");
    ledger.account(Stage::Export, "a").add(Count::ExportFailed, 7);
    assert_eq!((ledger.lost(), ledger.imbalances()), (5, vec![]));
    assert_eq!(ledger.losses(), [(Count::ExportFailed, 7), (Count::WriteFailed, 5)]);
}

#[test]
#[should_panic(expected = "another stage")]
fn a_counter_stays_with_its_stage() {
    Ledger::new().account(Stage::Nic, "a").add(Count::Late, 1);
}

#[test]
fn an_event_of_a_port_counts_once() {
    let (mut all, mut counted) = (Ledger::new(), 0);
    for (queue, downs) in [("e@0", 2), ("e@1", 1), ("e@2", 3), ("e@3", 3)] {
        let mut own = Ledger::new();
        own.account(Stage::Receive, queue).add(Count::Received, 5).add(Count::LinkDown, downs);
        own.count_once(Count::LinkDown, &mut counted);
        all.add_all(&own);
    }
    assert_eq!((all.total(Count::LinkDown), all.total(Count::Received)), (3, 20));
}
