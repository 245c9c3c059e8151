//! Documentation pages and their fenced blocks.

use std::fs;
use std::path::{Path, PathBuf};

/// Page of the book, or the README of the repository.
pub struct Page {
    /// Path from the root of the repository.
    pub name: String,
    /// Complete text.
    pub text: String,
}

/// Fenced block.
pub struct Block {
    /// Words after the opening fence.
    pub words: Vec<String>,
    /// Lines between the fences.
    pub lines: Vec<String>,
    /// Line number of its first line in the page, from 1.
    pub line: usize,
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Returns all pages: those below `docs`, and the README.
pub fn all() -> Vec<Page> {
    let docs = super::files(&root().join("docs"));
    let found: Vec<Page> = docs
        .into_iter()
        .chain([root().join("README.md")])
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| Page {
            name: path.strip_prefix(root()).expect("a path below the root").to_string_lossy().into_owned(),
            text: fs::read_to_string(&path).expect("a page in UTF-8"),
        })
        .collect();
    assert!(found.len() > 10, "the pages were not found");
    found
}

impl Page {
    /// Returns its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let (mut blocks, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
        for (index, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), open.as_mut()) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(info), None) => {
                    let words = info.split_whitespace().map(str::to_owned).collect();
                    open = Some(Block { words, lines: Vec::new(), line: index + 2 });
                }
                (None, Some(block)) => block.lines.push(line.to_owned()),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block without an end", self.name);
        blocks
    }

    /// Returns its lines outside fenced blocks.
    pub fn prose(&self) -> Vec<&str> {
        let mut inside = false;
        let lines = self.text.lines().filter(|line| {
            let fence = line.starts_with("```");
            inside ^= fence;
            !inside && !fence
        });
        lines.collect()
    }
}
