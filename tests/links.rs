//! All pages are in the table of contents, and all links have targets.

use linerate_tests::support::pages::{self, Page, root};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Kinds of blocks without commands.
const KINDS: &[&str] = &["sql", "toml", "json", "text", "c", "python", "rust", "sh"];

/// Targets of all links of a page.
fn links(page: &Page) -> Vec<String> {
    let prose = page.prose().join("\n");
    prose.split("](").skip(1).filter_map(|part| Some(part.split_once(')')?.0.to_owned())).collect()
}

/// Resolves a path relative to a page; returns it relative to the root.
fn target(page: &str, path: &str) -> PathBuf {
    let mut whole = Path::new(page).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}

/// Anchors of a page's headings, as mdBook and Git hosting sites generate them.
fn anchors(page: &Page) -> Vec<String> {
    let headings = page.prose().into_iter().filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#')));
    let anchor = |heading: &str| {
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let all = pages::all();
    let contents = all.iter().find(|page| page.name == "docs/SUMMARY.md").expect("docs/SUMMARY.md");
    let listed: Vec<String> =
        links(contents).iter().map(|link| target(&contents.name, link).to_string_lossy().into_owned()).collect();
    let once: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice: {listed:?}");
    for page in all.iter().filter(|page| page.name != "README.md" && page.name != contents.name) {
        assert!(once.contains(&page.name), "docs/SUMMARY.md does not list {}", page.name);
    }
    for name in once {
        assert!(root().join(name).exists(), "docs/SUMMARY.md lists {name}, which does not exist");
    }
}

#[test]
fn links_point_to_existing_pages_and_headings() {
    let all = pages::all();
    for page in &all {
        for link in links(page).iter().filter(|link| !link.starts_with("http")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let leads_to = if path.is_empty() { PathBuf::from(&page.name) } else { target(&page.name, path) };
            assert!(root().join(&leads_to).exists(), "{}: {link} does not exist", page.name);
            // A book that is built elsewhere contains only its pages.
            let stays = leads_to.starts_with("docs") || page.name == "README.md";
            assert!(stays, "{}: {link} points outside the book: write the file name without a link", page.name);
            if !anchor.is_empty() {
                let other = all.iter().find(|other| Path::new(&other.name) == leads_to).expect("a page");
                assert!(anchors(other).iter().any(|one| one == anchor), "{}: {link}: no such heading", page.name);
            }
        }
    }
}

/// Every command is in a block that the tests run.
#[test]
fn every_command_is_in_a_console_block() {
    for page in pages::all() {
        for block in page.blocks() {
            let kind = block.words.first().map_or("text", String::as_str);
            assert!(
                kind == "console" || KINDS.contains(&kind),
                "{}:{}: unknown kind of block {kind}",
                page.name,
                block.line
            );
            for line in block.lines.iter().filter(|_| kind != "console") {
                let command = line.trim_start().trim_start_matches("$ ").trim_start_matches("sudo ");
                assert!(!command.starts_with("linerate "), "{}: make it a console block: {line}", page.name);
            }
        }
    }
}
