use super::*;
use std::collections::HashSet;

#[test]
fn every_counter_is_named_once_and_described() {
    let mut names = HashSet::new();
    for count in Count::ALL {
        assert!(names.insert((count.stage(), count.name())), "{count:?} shares its name");
        assert!(count.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{count:?}");
        let sentence = count.sentence();
        assert!(sentence.ends_with('.') && sentence.len() > 20 && !sentence.contains("  "), "{count:?}: {sentence:?}");
    }
}
