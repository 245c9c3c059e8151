//! Counts words and phrases that obscure the meaning of a sentence. The number per folder may only fall.

use super::{read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Words that the field does not use, or has better words for.
const HABITS: &[&str] = &[
    "alone",
    "anew",
    "beside",
    "came",
    "doubt",
    "guest",
    "honest",
    "mend",
    "mended",
    "mends",
    "meanwhile",
    "nobody",
    "says",
    "somebody",
    "stranger",
    "tells",
    "told",
    "whoever",
    "wish",
    "go on",
    "goes on",
    "is said",
    "are said",
    "is no",
    "are no",
    "let go",
    "means nothing",
    "no such one",
    "put out",
    "so many",
    "so much",
    "so often",
    "such a one",
    "there is no",
    "there are no",
    "there is none",
    "which there is not",
];

/// First words of doc comments that should be nouns or verbs.
const CLAUSES: &[&str] = &["What", "Who", "Whoever", "Whose", "Whether", "Where", "How", "Of"];

#[test]
fn habits_of_language_become_fewer() {
    let path = root().join("tests/house/words.txt");
    let mut text = String::new();
    for (folder, number) in count() {
        text += &format!("{number:6} {folder}\n");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let allowed: BTreeMap<String, usize> = read(&path)
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(number, folder)| (folder.to_owned(), number.parse().unwrap()))
        .collect();
    for (folder, number) in count() {
        let most = allowed.get(&folder).copied().unwrap_or_default();
        assert!(
            number <= most,
            "{folder} has {number} habits of {HABITS:?}, {most} are allowed: use the field's words"
        );
    }
}

/// Number of habits in comments, strings and pages per folder.
fn count() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "md")
                && name != "words.rs"
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                *found.entry(part(&path)).or_default() += habits(&text);
            }
        }
    }
    found.retain(|_, number| *number > 0);
    found
}

/// Returns `crates/NAME/src`, or the first folder of the path.
fn part(path: &std::path::Path) -> String {
    let path: PathBuf = path.strip_prefix(root()).unwrap().into();
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let depth = if parts[0] == "crates" { 3 } else { 1 };
    parts[..depth.min(parts.len())].join("/")
}

fn habits(text: &str) -> usize {
    let clauses = text.lines().filter(|line| {
        let comment = line.trim_start().strip_prefix("/// ");
        comment.is_some_and(|comment| CLAUSES.iter().any(|word| comment.split(' ').next() == Some(word)))
    });
    // A word right after a dot is code: a method, a field or a file name extension.
    let words: Vec<String> = text
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '.')
        .filter_map(|word| word.split('.').next())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let starts: BTreeSet<&str> = HABITS.iter().filter_map(|habit| habit.split(' ').next()).collect();
    let is_habit = |from: &usize| {
        HABITS.iter().any(|habit| {
            let mut next = words[*from..].iter();
            habit.split(' ').all(|part| next.next().is_some_and(|word| word == part))
        })
    };
    let phrases = (0..words.len()).filter(|from| starts.contains(words[*from].as_str())).filter(is_habit);
    clauses.count() + phrases.count()
}
